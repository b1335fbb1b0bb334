/// \file
/// Links as they were measured between places, and the table of a group's links that they give.
/// Pure. A place is a set of workers that others reach alike (a host at one address): one pair of
/// workers is measured for all pairs of two places.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/cost/links.h"
#include "comm/cost/transport_choice.h"

namespace heddle::comm {

struct MeasuredLinks {
  std::vector<int> place;  ///< By worker.
  /// By places a <= b: each transport that joined them, `there` from a to b.
  std::map<std::pair<int, int>, std::vector<MeasuredTransport>> pairs;

  /// What joined two workers, `there` from the first to the second; empty: they are not measured.
  /// Workers without a place are not.
  std::vector<MeasuredTransport> Between(int from, int to) const;
};

/// The table of LinksBetween(ends), and where a pair is measured what was measured of the transport
/// that it chooses. Crowding is the ends'. Errors of `measured` are the caller's to find.
LinkTable LinksBetween(std::span<const LinkEnd> ends,
                       const MeasuredLinks& measured,
                       const TransportPreference& preference);

}  // namespace heddle::comm
