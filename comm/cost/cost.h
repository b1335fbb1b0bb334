/// \file
/// What communication costs, without communicating: the all-reduce that comm would choose
/// (topology.h), the reproducible reduction and the gathering of records. Pure. Model: a message of
/// b bytes over a link takes latency + b / bytes_per_second (Hockney's model).
#pragma once

#include <cstdint>
#include <span>

#include "comm/cost/links.h"
#include "comm/cost/topology.h"

namespace heddle::comm {

/// The algorithm for an all-reduce of `bytes` among `group` (ranks into `links`, ascending), of
/// elements that are folded as they are. Makes the group's Topology anew: who asks for many sizes
/// keeps one.
inline AllReduceChoice ChooseAllReduce(const LinkTable& links,
                                       std::span<const int> group,
                                       int64_t bytes) {
  return Topology::Of(links, group).AllReduce(bytes, 1);
}

/// Predicted seconds of that all-reduce under the algorithm chosen above.
inline double AllReduceSeconds(const LinkTable& links, std::span<const int> group, int64_t bytes) {
  return ChooseAllReduce(links, group, bytes).seconds;
}

/// How many members of a group own a slice in a ReduceTree of `bytes`: all, unless slices got so
/// small that messages cost more than bytes.
int ReduceTreeOwners(int members, int64_t bytes);

/// Predicted seconds of Communicator::ReduceTree of a tensor of `bytes` where group[i] holds
/// contributions[i] partial sums: slice owners receive every partial sum of their slice, fold, and
/// send the result to all.
double ReduceTreeSeconds(const LinkTable& links,
                         std::span<const int> group,
                         std::span<const int> contributions,
                         int64_t bytes);

/// Predicted seconds of Communicator::AllGatherBytes of `bytes` a worker among all workers.
double AllGatherBytesSeconds(const LinkTable& links, int64_t bytes);

}  // namespace heddle::comm
