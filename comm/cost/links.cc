#include "comm/cost/links.h"

#include <algorithm>

namespace heddle::comm {

LinkTable LinksBetween(std::span<const LinkEnd> ends) {
  const int size = static_cast<int>(ends.size());
  LinkTable links(size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const LinkEnd& a = ends[static_cast<size_t>(from)];
      const LinkEnd& b = ends[static_cast<size_t>(to)];
      links.At(from, to) = {
          .latency_seconds = std::max(a.link.latency_seconds, b.link.latency_seconds),
          .bytes_per_second = std::min(a.link.bytes_per_second, b.link.bytes_per_second),
          .transport = a.host == b.host ? a.link.transport : UniversalTransport(),
          .crowding = a.link.crowding,
          .peer_bytes_per_second = a.host == b.host ? std::min(a.link.peer_bytes_per_second,
                                                               b.link.peer_bytes_per_second)
                                                    : 0};
    }
  }
  return links;
}

}  // namespace heddle::comm
