#include "engine/runtime/device/peer_memory.h"

#include "base/check.h"

namespace heddle::runtime {

std::vector<uint8_t> AdditionOrder(std::span<const TreeNode> nodes) {
  if (nodes.empty() || nodes.size() > kMostAddends) {
    return {};
  }
  const std::vector<Fold> folds = FoldOrder(nodes);
  std::vector<uint8_t> additions(nodes.size(), 0);
  std::vector<int> pending;
  auto next = folds.begin();
  for (size_t i = 0; i < nodes.size(); ++i) {
    pending.push_back(static_cast<int>(i));
    if (pending.size() > kMostPending) {
      return {};
    }
    for (; next != folds.end() && next->right == pending.back(); ++next) {
      pending.pop_back();
      HEDDLE_CHECK(next->left == pending.back(), "additions that are not those of a tree");
      ++additions[i];
    }
  }
  HEDDLE_CHECK(pending.size() == 1, "{} sums without another half", pending.size());
  return additions;
}

}  // namespace heddle::runtime
