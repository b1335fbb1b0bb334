#include "comm/cost/measured_links.h"

#include <algorithm>

namespace heddle::comm {

std::vector<MeasuredTransport> MeasuredLinks::Between(int from, int to) const {
  const auto workers = static_cast<int>(place.size());
  if (from >= workers || to >= workers) {
    return {};
  }
  const int a = place[static_cast<size_t>(from)];
  const int b = place[static_cast<size_t>(to)];
  const auto found = pairs.find(std::minmax(a, b));
  if (found == pairs.end()) {
    return {};
  }
  std::vector<MeasuredTransport> measured = found->second;
  if (a > b) {
    for (MeasuredTransport& transport : measured) {
      std::swap(transport.there, transport.back);
    }
  }
  return measured;
}

LinkTable LinksBetween(std::span<const LinkEnd> ends,
                       const MeasuredLinks& measured,
                       const TransportPreference& preference) {
  LinkTable links = LinksBetween(ends);
  std::map<std::pair<int, int>, std::pair<Link, Link>> chosen;  // Once a pair of places.
  for (const auto& [places, transports] : measured.pairs) {
    const std::string name = ChooseTransport(preference, transports).transport;
    const auto found = std::ranges::find(transports, name, &MeasuredTransport::transport);
    if (found != transports.end()) {
      chosen[places] = {found->there, found->back};
    }
  }
  const int known = std::min(links.size(), static_cast<int>(measured.place.size()));
  for (int from = 0; from < known; ++from) {
    for (int to = 0; to < known; ++to) {
      const int a = measured.place[static_cast<size_t>(from)];
      const int b = measured.place[static_cast<size_t>(to)];
      const auto pair = chosen.find(std::minmax(a, b));
      if (from == to || pair == chosen.end()) {
        continue;
      }
      Link& link = links.At(from, to);
      const Link by_ends = link;
      link = a <= b ? pair->second.first : pair->second.second;
      link.crowding = by_ends.crowding;
      link.peer_bytes_per_second = by_ends.peer_bytes_per_second;
    }
  }
  return links;
}

}  // namespace heddle::comm
