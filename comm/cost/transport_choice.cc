#include "comm/cost/transport_choice.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::comm {

namespace {

std::string Cost(const MeasuredTransport& measured) {
  return fmt::format(
      "{:.1f} us + 256 KiB at {:.2f} GB/s",
      1e6 * (measured.there.latency_seconds + measured.back.latency_seconds) / 2,
      std::min(measured.there.bytes_per_second, measured.back.bytes_per_second) / 1e9);
}

std::string WhyCheapest(const MeasuredTransport& chosen,
                        std::span<const MeasuredTransport* const> all) {
  if (all.size() == 1) {
    return "the only one that joins them";
  }
  std::string others;
  for (const MeasuredTransport* other : all) {
    if (other != &chosen) {
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", other->transport, Cost(*other));
    }
  }
  const bool cheapest = std::ranges::all_of(all, [&](const MeasuredTransport* other) {
    return MixSeconds(chosen) <= MixSeconds(*other);
  });
  return fmt::format("{}: {} against {}", cheapest ? "cheapest" : "none is clearly cheaper",
                     Cost(chosen), others);
}

}  // namespace

double MixSeconds(const MeasuredTransport& measured) {
  double seconds = 0;
  for (const Link* link : {&measured.there, &measured.back}) {
    seconds += (link->Seconds(kActivationBytes) + link->Seconds(kVoteBytes)) / 2;
  }
  return seconds;
}

TransportChoice ChooseTransport(const TransportPreference& preference,
                                std::span<const MeasuredTransport> measured) {
  std::vector<const MeasuredTransport*> known;  // In the list's order.
  for (const std::string& name : preference.list) {
    const auto found = std::ranges::find(measured, name, &MeasuredTransport::transport);
    if (found != measured.end()) {
      known.push_back(&*found);
    }
  }
  TransportChoice choice;
  choice.order = preference.list;
  choice.why = "first of the list";
  if (known.empty()) {
    choice.transport = preference.list.empty() ? "" : preference.list.front();
    return choice;
  }
  const MeasuredTransport* best = known.front();
  if (preference.rule == TransportRule::kCheapest) {
    for (const MeasuredTransport* other : known) {
      const TransportTraits* const traits = FindTransport(best->transport);
      const bool shared = traits != nullptr && traits->within_host;
      const double margin = shared ? kClearlyOfShared : 1;
      if (margin * MixSeconds(*other) < MixSeconds(*best)) {
        best = other;
      }
    }
    choice.cheapest = true;
    choice.why = WhyCheapest(*best, known);
  }
  choice.transport = best->transport;
  // Transports that did not join the pair when it was measured are still tried, in their order.
  const auto place = std::ranges::find(choice.order, choice.transport);
  std::rotate(choice.order.begin(), place, place + 1);
  return choice;
}

}  // namespace heddle::comm
