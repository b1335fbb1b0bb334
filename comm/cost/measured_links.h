/// \file
/// Links as measured between places, and the table of a group's links that they give. Pure. A place
/// is a set of workers that are reached in the same way (a host at one address), so that one pair
/// of workers is measured for all pairs of two places.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/cost/links.h"
#include "comm/cost/transport_choice.h"

namespace heddle::comm {

struct MeasuredLinks {
  std::vector<int> place;  ///< The place of each worker.
  /// Measurements of the transports that joined two places a <= b; `there` is from a to b.
  std::map<std::pair<int, int>, std::vector<MeasuredTransport>> pairs;

  /// Measurements of the transports that joined two workers; `there` is from the first to the
  /// second. Empty: not measured, or a worker has no place.
  std::vector<MeasuredTransport> Between(int from, int to) const;
};

/// The table of LinksBetween(ends), in which the link of a measured pair is the measurement of the
/// transport that the pair chooses; its crowding and the rate of the devices are those of the ends.
/// The caller has validated `measured`.
LinkTable LinksBetween(std::span<const LinkEnd> ends,
                       const MeasuredLinks& measured,
                       const TransportPreference& preference);

}  // namespace heddle::comm
