/// \file
/// The links among a set of workers, as measured or assumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/cost/transport_traits.h"

namespace heddle::comm {

/// One direction of the link between two workers.
struct Link {
  double latency_seconds = 50e-6;
  double bytes_per_second = 1e9;
  std::string transport = UniversalTransport();  ///< Transport that joins the pair.
  double crowding =
      1;  ///< Workers per core of the sender's host, at least 1; they share the cores.
  /// Rate at which the two workers' devices read each other's memory, beside the host's; 0: they do
  /// not.
  double peer_bytes_per_second = 0;

  double Seconds(int64_t bytes) const {
    return latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  }
};

/// Links by ordered pair of workers, 0 … size-1.
class LinkTable {
 public:
  LinkTable() = default;
  explicit LinkTable(int size)
      : size_(size),
        links_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}
  int size() const { return size_; }
  Link& At(int from, int to) { return links_[Index(from, to)]; }
  const Link& At(int from, int to) const { return links_[Index(from, to)]; }

 private:
  size_t Index(int from, int to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
  }
  int size_ = 0;
  std::vector<Link> links_;
};

/// A link as measured at a worker's own end, and the worker's host.
struct LinkEnd {
  Link link;
  std::string host;
};

/// The table of links that the ends give. The link of a pair is the slower of its two ends. Its
/// transport is that of the first end if both are on one host, else the universal one, and their
/// devices read each other's memory on one host alone.
LinkTable LinksBetween(std::span<const LinkEnd> ends);

}  // namespace heddle::comm
