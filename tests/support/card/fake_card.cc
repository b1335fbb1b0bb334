// In the place of engine/runtime/device/cuda/open.cc: a card is a fake device (fake_device.h).
#include <memory>

#include "engine/machine/cards.h"
#include "engine/machine/device_choice.h"
#include "engine/runtime/device/card_registry.h"
#include "tests/support/device/fake_device.h"

namespace heddle::runtime::testing {
namespace {

Result<std::unique_ptr<Device>> Open(int number, const DeviceOptions& options) {
  const machine::Cards cards = machine::FindCards();
  const machine::Card& card = cards.list.at(static_cast<size_t>(number));
  return std::unique_ptr<Device>(std::make_unique<FakeDevice>(
      FakeOptions{.memory_bytes = static_cast<size_t>(card.free_bytes - machine::kLeastFreeBytes),
                  .emulated_bytes = options.memory_cap_bytes,
                  .card = card.uuid}));
}

const CardRegistration registration(&Open);

}  // namespace
}  // namespace heddle::runtime::testing
