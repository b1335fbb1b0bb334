#include "comm/collective/fold_plan.h"

#include <algorithm>

#include "comm/message/call_signature.h"

namespace heddle::comm {

Result<FoldPlan> MakeFoldPlan(const TreeContributions& contributions) {
  FoldPlan plan;
  for (size_t member = 0; member < contributions.nodes.size(); ++member) {
    const auto& nodes = contributions.nodes[member];
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].level < 0 || nodes[i].level > 61 || nodes[i].index < 0 ||
          nodes[i].index >= int64_t{1} << (61 - nodes[i].level)) {
        return InvalidArgumentError("tree node {}.{} of position {}", nodes[i].level,
                                    nodes[i].index, member);
      }
      plan.leaves.push_back(
          {.node = nodes[i], .member = static_cast<int>(member), .index = static_cast<int>(i)});
    }
  }
  std::sort(plan.leaves.begin(), plan.leaves.end(),
            [](const auto& a, const auto& b) { return a.node.first() < b.node.first(); });
  std::vector<TreeNode> nodes;
  std::vector<int> holder;
  for (const auto& leaf : plan.leaves) {
    if (!nodes.empty() && leaf.node.first() < nodes.back().last()) {
      return InvalidArgumentError("tree nodes of two contributions overlap at number {}",
                                  leaf.node.first());
    }
    nodes.push_back(leaf.node);
    holder.push_back(leaf.member);
  }
  if (nodes.empty() || nodes.size() > size_t{1} << kMinorBits) {
    return InvalidArgumentError("a reduction of {} contributions", nodes.size());
  }
  constexpr int kSeveral = -1;
  plan.travels.assign(nodes.size(), true);
  for (const Fold& fold : FoldOrder(nodes)) {
    int& left = holder[static_cast<size_t>(fold.left)];
    if (left != kSeveral && left == holder[static_cast<size_t>(fold.right)]) {
      plan.at_member.push_back(fold);
      plan.travels[static_cast<size_t>(fold.right)] = false;
    } else {
      plan.at_owner.push_back(fold);
      left = kSeveral;
    }
  }
  return plan;
}

Status CheckContributions(const TreeContributions& contributions,
                          int members,
                          int position,
                          std::span<const std::span<const std::byte>> mine,
                          size_t output_bytes) {
  if (contributions.nodes.size() != static_cast<size_t>(members) ||
      mine.size() != contributions.nodes[static_cast<size_t>(position)].size()) {
    return InvalidArgumentError("{} values where the plan has other contributions", mine.size());
  }
  for (const auto& value : mine) {
    if (value.size() != output_bytes) {
      return InvalidArgumentError("a contribution of {} bytes to a result of {}", value.size(),
                                  output_bytes);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::comm
