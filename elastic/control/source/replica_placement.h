/// \file
/// Who holds a replica of whose shard of each snapshot in memory. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::elastic {

/// A member of a plan, as far as it matters here.
struct ReplicaMember {
  std::string name;
  std::string host;
  std::string failure_domain;  ///< Of those that are lost together; empty: unknown.
  bool owns = true;            ///< It has a part to be kept. Without one it may keep others'.
};

/// By rank: the other ranks that keep its part; none for a member that owns no part. Every owner
/// has min(copies, members - 1) holders, and no holder more than its share, ceil(parts kept /
/// members). Within that, as few holders as can be are on their owner's host, then as few as can be
/// in a failure domain that is not known to differ from its; those of one owner are on unlike hosts
/// and in unlike domains where they can be. Exact for one copy and up to 64 members, near to it
/// otherwise: for each part that could be kept better 128 exchanges at most are tried. A function
/// of its arguments. Time O(members × (log(members) + copies³)) and those exchanges; 2,000 members:
/// tens of milliseconds.
std::vector<std::vector<int32_t>> PlaceReplicas(const std::vector<ReplicaMember>& members,
                                                int copies);

}  // namespace heddle::elastic
