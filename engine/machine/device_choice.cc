#include "engine/machine/device_choice.h"

#include <charconv>

#include <fmt/format.h>

namespace heddle::machine {
namespace {

// The oldest driver that runs programs of CUDA 12, below which no libtorch of today is built.
constexpr int kLeastDriver = 525;

double GiB(int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30);
}

bool IsTooOld(const std::string& driver) {
  int major = 0;
  const char* const end = driver.data() + driver.size();
  return std::from_chars(driver.data(), end, major).ec == std::errc() && major < kLeastDriver;
}

std::string OutOf(const Cards& cards) {
  const size_t count = cards.list.size();
  if (count == 0) {
    return "this machine has no NVIDIA card, or no driver for it";
  }
  return count == 1
             ? "this machine has 1 NVIDIA card, cuda:0"
             : fmt::format("this machine has {} NVIDIA cards, cuda:0 to cuda:{}", count, count - 1);
}

}  // namespace

#ifdef HEDDLE_WITH_CUDA
const Support kThisBuild{.cuda = true};
#else
const Support kThisBuild{.cuda = false};
#endif

std::string WhyNotCard(const Cards& cards, int index, const Support& build) {
  if (!cards.fault.empty()) {
    return "the NVIDIA driver does not answer: " + cards.fault;
  }
  if (static_cast<size_t>(index) >= cards.list.size()) {
    return OutOf(cards);
  }
  const Card& card = cards.list[static_cast<size_t>(index)];
  if (!card.fault.empty()) {
    return "the NVIDIA driver cannot use it: " + card.fault;
  }
  if (card.memory_bytes > 0 && card.free_bytes < kLeastFreeBytes) {
    return fmt::format(
        "{:.1f} GiB of its {:.1f} GiB of memory are free, fewer than the {:.0f} GiB "
        "that a worker needs at least",
        GiB(card.free_bytes), GiB(card.memory_bytes), GiB(kLeastFreeBytes));
  }
  if (IsTooOld(cards.driver)) {
    return fmt::format("its driver {} is older than {}, which CUDA 12 needs: install a newer one",
                       cards.driver, kLeastDriver);
  }
  return build.cuda ? "" : "this build of heddle-engine has no CUDA";
}

Result<DeviceName> ChooseDevice(const DeviceName& asked, const Cards& cards, const Support& build) {
  using Kind = DeviceName::Kind;
  if (asked.kind == Kind::kCuda) {
    const std::string reason = WhyNotCard(cards, asked.index, build);
    if (!reason.empty()) {
      return InvalidArgumentError(
          "device '{}': {}; give cpu or auto, and see `heddle devices` for what can be used",
          DeviceNameText(asked), reason);
    }
  }
  if (asked.kind != Kind::kAuto) {
    return asked;
  }
  for (int i = 0; i < static_cast<int>(cards.list.size()); ++i) {
    if (WhyNotCard(cards, i, build).empty()) {
      return DeviceName{.kind = Kind::kCuda, .index = i};
    }
  }
  return DeviceName{.kind = Kind::kCpu};
}

Result<DeviceName> ChooseDevice(std::string_view name) {
  Result<DeviceName> asked = ParseDeviceName(name);
  if (!asked.ok()) {
    return asked.status().WithContext("device");
  }
  const bool is_cpu = asked->kind == DeviceName::Kind::kCpu;
  return ChooseDevice(*asked, is_cpu ? Cards() : FindCards(), kThisBuild);
}

}  // namespace heddle::machine
