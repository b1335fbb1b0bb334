/// \file
/// Predicts the cost of communication: of the all-reduce that comm would choose (topology.h), of
/// the reproducible reduction and of gathering records. Pure. Model: a message of b bytes over a
/// link takes latency + b / bytes_per_second (Hockney's model).
#pragma once

#include <cstdint>
#include <span>

#include "comm/cost/links.h"
#include "comm/cost/topology.h"

namespace heddle::comm {

/// The algorithm for an all-reduce of `bytes` among `group` (ranks into `links`, ascending), whose
/// elements are reduced in their own type. Constructs the group's Topology; callers with many sizes
/// should keep one instead.
inline AllReduceChoice ChooseAllReduce(const LinkTable& links,
                                       std::span<const int> group,
                                       int64_t bytes) {
  return Topology::Of(links, group).AllReduce(bytes, 1);
}

/// Predicted seconds of an all-reduce with the algorithm of ChooseAllReduce.
inline double AllReduceSeconds(const LinkTable& links, std::span<const int> group, int64_t bytes) {
  return ChooseAllReduce(links, group, bytes).seconds;
}

/// Number of members of a group that own a slice in a ReduceTree of `bytes`: all, unless slices
/// became so small that messages cost more than bytes.
int ReduceTreeOwners(int members, int64_t bytes);

/// Predicted seconds of Communicator::ReduceTree of a tensor of `bytes` where group[i] holds
/// contributions[i] partial sums: slice owners receive every partial sum of their slice, add them,
/// and send the result to all.
double ReduceTreeSeconds(const LinkTable& links,
                         std::span<const int> group,
                         std::span<const int> contributions,
                         int64_t bytes);

/// Predicted seconds of Communicator::ReduceScatterTree where group[i] holds contributions[i] partial
/// sums and gets shares[i] bytes.
double ReduceScatterTreeSeconds(const LinkTable& links,
                                std::span<const int> group,
                                std::span<const int> contributions,
                                std::span<const int64_t> shares);

/// Predicted seconds of Communicator::AllGatherBytes of `bytes` per worker among all workers.
double AllGatherBytesSeconds(const LinkTable& links, int64_t bytes);

}  // namespace heddle::comm
