/// \file
/// Who adds what in a reproducible reduction: the order of base/tensor/reduction_tree.h over all
/// members' nodes. A sum whose operands one member holds alone is added there: the same addition of
/// the same bits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tensor/reduction_tree.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// All members' nodes in ascending order, and who adds what.
struct FoldPlan {
  struct Leaf {
    TreeNode node;
    int member = 0;
    int index = 0;  ///< Into that member's nodes.
  };
  std::vector<Leaf> leaves;
  std::vector<Fold> at_owner;   ///< Behind the members'.
  std::vector<Fold> at_member;  ///< Folds whose operands one member holds alone.
  std::vector<bool> travels;    ///< By leaf: its value is still there after the members' folds.
};

/// Errors: kInvalidArgument (no nodes, too many, or such as overlap or are none).
Result<FoldPlan> MakeFoldPlan(const TreeContributions& contributions);

/// That the member at `position` brings what the plan says, and as much as the result. Errors:
/// kInvalidArgument.
Status CheckContributions(const TreeContributions& contributions,
                          int members,
                          int position,
                          std::span<const std::span<const std::byte>> mine,
                          size_t output_bytes);

}  // namespace heddle::comm
