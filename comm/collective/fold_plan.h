/// \file
/// The additions of a reproducible reduction, in the order of base/tensor/reduction_tree.h over all
/// members' nodes, and the member that makes each. An addition whose operands one member holds is
/// made there; it is the same addition of the same bits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tensor/reduction_tree.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// All members' nodes in ascending order, and where each addition is made.
struct FoldPlan {
  struct Leaf {
    TreeNode node;
    int member = 0;
    int index = 0;  ///< Index into that member's nodes.
  };
  std::vector<Leaf> leaves;
  std::vector<Fold> at_owner;   ///< Folds at the owner of a slice, after those in `at_member`.
  std::vector<Fold> at_member;  ///< Folds whose operands one member holds alone.
  std::vector<bool> travels;    ///< By leaf: the folds in `at_member` leave a value there to send.
};

/// Makes the plan of a reduction. Errors: kInvalidArgument (no nodes, too many, nodes that overlap
/// or are out of range).
Result<FoldPlan> MakeFoldPlan(const TreeContributions& contributions);

/// Checks that the member at `position` passes as many values as the plan has nodes for it, each of
/// `output_bytes` bytes. Errors: kInvalidArgument.
Status CheckContributions(const TreeContributions& contributions,
                          int members,
                          int position,
                          std::span<const std::span<const std::byte>> mine,
                          size_t output_bytes);

}  // namespace heddle::comm
