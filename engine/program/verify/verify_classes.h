/// \file
/// Classes of equivalent pipelines, whose programs differ only in ranks and in the numbers of
/// microbatches, so that one of them can stand for all.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/program/plan.h"
#include "engine/program/verify/verify.h"

namespace heddle::program {

/// A worker whose instructions are equivalent to those of a followed worker.
struct Twin {
  int rank = -1;
  int64_t shift = 0;  ///< First microbatch of the twin's pipeline minus that of the followed one's.
};

/// The workers whose instructions are followed, and the workers for which they stand.
struct Followed {
  std::vector<int> ranks = {};                ///< Ranks of the followed workers, ascending.
  std::vector<std::vector<Twin>> twins = {};  ///< Twins of each worker, by rank.
};

/// The workers to follow for a scope: all workers, without twins; or those of the first pipeline of
/// each class, and idle workers. Pipelines are equivalent if they have equal cuts, recomputation,
/// forwards ahead and layouts, equally many microbatches and, in an exact plan, the same position of these
/// within the reduction tree.
Followed FollowedOf(const Plan& plan, VerifyScope scope);

}  // namespace heddle::program
