/// \file
/// Which members hold replicas of which shards of a snapshot in memory. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::elastic {

/// What the placement needs to know of a member of a plan.
struct ReplicaMember {
  std::string name;
  std::string host;
  std::string failure_domain;  ///< Members of one domain may be lost together; empty: unknown.
  bool owns = true;            ///< It has a shard. A member without one may hold others' replicas.
};

/// Returns, by rank, the other ranks that hold replicas of the member's shard; none for a member
/// that owns no shard. Every owner has min(copies, members - 1) holders, and no member holds more
/// than its share, ceil(replicas / members).
///
/// Within that it avoids, the worst first: a holder on the owner's host, two holders of one shard
/// on one host, a holder whose failure domain is not known to differ from the owner's, and two
/// holders of one shard in one domain. The result is optimal for one copy and up to 64 members, and
/// close to optimal otherwise: up to four rounds try at most 128 exchanges for each replica that
/// could be placed better. It depends on the arguments only. Time O(members × (log(members) +
/// copies³)) plus the exchanges; 2,000 members take tens of milliseconds.
std::vector<std::vector<int32_t>> PlaceReplicas(const std::vector<ReplicaMember>& members,
                                                int copies);

}  // namespace heddle::elastic
