/// \file
/// Pipelines that are alike: their programs differ only in ranks and in the numbers of
/// microbatches, so that one of them can stand for all.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/program/plan.h"
#include "engine/program/verify/verify.h"

namespace heddle::program {

/// A worker whose instructions are those of another one.
struct Twin {
  int rank = -1;
  int64_t shift = 0;  ///< Its microbatches' numbers, less the other one's.
};

/// Whose instructions are followed, and for whom they stand.
struct Followed {
  std::vector<int> ranks = {};                ///< Ascending.
  std::vector<std::vector<Twin>> twins = {};  ///< By rank.
};

/// Everybody's without twins, or those of the first pipeline of each class and of idle workers.
/// Alike are pipelines of equal cuts, recomputation and forwards ahead, with equally many
/// microbatches, and in an exact plan with the same place of these within the reduction tree.
Followed FollowedOf(const Plan& plan, VerifyScope scope);

}  // namespace heddle::program
