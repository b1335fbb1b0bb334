#include "engine/machine/device_choice.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace heddle::machine {
namespace {

// The oldest driver that runs programs of this version of CUDA.
int LeastDriver(int cuda_major) {
  constexpr int kOfCuda12 = 525;
  constexpr int kOfCuda13 = 580;
  return cuda_major < 13 ? kOfCuda12 : kOfCuda13;
}

double GiB(int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30);
}

bool IsOlder(const std::string& driver, int least) {
  int major = 0;
  const char* const end = driver.data() + driver.size();
  return std::from_chars(driver.data(), end, major).ec == std::errc() && major < least;
}

DeviceName CardNumber(int index) {
  return {.kind = DeviceName::Kind::kCuda, .index = index};
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
  if (const int least = LeastDriver(build.cuda_major); IsOlder(cards.driver, least)) {
    return fmt::format("its driver {} is older than {}, which CUDA {} needs: install a newer one",
                       cards.driver, least, build.cuda_major);
  }
  return build.cuda ? "" : "this build of heddle-engine has no CUDA";
}

std::vector<DeviceName> SpreadDevices(const std::vector<DeviceName>& asked,
                                      const Cards& cards,
                                      const Support& build) {
  using Kind = DeviceName::Kind;
  std::map<int, int> workers;  // By card that can be used.
  for (int i = 0; i < static_cast<int>(cards.list.size()); ++i) {
    if (WhyNotCard(cards, i, build).empty()) {
      workers[i] = static_cast<int>(std::ranges::count(asked, CardNumber(i)));
    }
  }
  std::vector<DeviceName> chosen = asked;
  for (DeviceName& device : chosen) {
    if (device.kind == Kind::kCpu || (device.kind == Kind::kCuda && device.index >= 0)) {
      continue;
    }
    const auto least = std::ranges::min_element(workers, {}, &std::pair<const int, int>::second);
    if (least == workers.end()) {
      device = DeviceName{.kind = Kind::kCpu};
      continue;
    }
    device = CardNumber(least->first);
    ++least->second;
  }
  return chosen;
}

Result<DeviceName> ChooseDevice(const DeviceName& asked,
                                const Cards& cards,
                                const Support& build,
                                int others) {
  using Kind = DeviceName::Kind;
  const std::vector<DeviceName> alike(static_cast<size_t>(others) + 1, asked);
  const DeviceName chosen = SpreadDevices(alike, cards, build).back();
  const std::string reason =
      asked.kind != Kind::kCuda ? ""
      : chosen.kind == Kind::kCuda
          ? WhyNotCard(cards, chosen.index, build)
          : (cards.list.size() > 1 ? "no card can be used, cuda:0 because " : "") +
                WhyNotCard(cards, 0, build);
  if (!reason.empty()) {
    return InvalidArgumentError(
        "device '{}': {}; give cpu or auto, and see `heddle devices` for what can be used",
        DeviceNameText(asked), reason);
  }
  return chosen;
}

Cards FindCardsFor(const std::vector<DeviceName>& asked) {
  using Kind = DeviceName::Kind;
  if (std::ranges::count(asked, Kind::kCpu, &DeviceName::kind) == std::ssize(asked)) {
    return {};
  }
  Cards cards = FindCards();
  if (!cards.fault.empty() && std::ranges::count(asked, Kind::kAuto, &DeviceName::kind) > 0) {
    LogWarning("device 'auto' is the processor: {}", WhyNotCard(cards, 0, kThisBuild));
  }
  return cards;
}

Result<DeviceName> ChooseDevice(std::string_view name, int others) {
  const Result<DeviceName> asked = ParseDeviceName(name);
  if (!asked.ok()) {
    return asked.status().WithContext("device");
  }
  return ChooseDevice(*asked, FindCardsFor({*asked}), kThisBuild, others);
}

}  // namespace heddle::machine
