#include "engine/program/lowering/gradient_sums.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::ParameterId;

GradientSums::GradientSums(const graph::Graph& graph, const Plan& plan, int rank)
    : graph_(&graph),
      rank_(rank),
      exact_(plan.determinism == Determinism::kExact),
      leaves_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(plan.microbatches())))) {}

Result<GradientSums> GradientSums::Create(const graph::Graph& graph,
                                          const GraphAnalysis& analysis,
                                          const Plan& plan,
                                          int rank) {
  GradientSums sums(graph, plan, rank);
  const Position position = PositionOf(plan, rank);
  if (position.pipeline < 0 || !analysis.differentiated) {
    return sums;
  }
  const Stage& stage = plan.pipelines[static_cast<size_t>(position.pipeline)]
                           .stages[static_cast<size_t>(position.stage)];
  std::vector<std::pair<int, ParameterId>> order;
  for (int segment = stage.first_segment; segment < stage.last_segment; ++segment) {
    for (const ParameterId parameter : analysis.segment_parameters[static_cast<size_t>(segment)]) {
      if (sums.sums_.count(parameter) > 0) {
        continue;
      }
      Sum sum = sums.MakeSum(analysis, plan, parameter);
      if (!sums.exact_ && sum.group.size() > 1) {
        for (size_t i = 0; i < sum.group.size(); ++i) {
          if (sum.contributions[i].empty()) {
            return InvalidArgumentError(
                "plan: worker {} holds parameter {} without a gradient of it, which relaxed "
                "determinism cannot reduce",
                plan.workers[static_cast<size_t>(sum.group[i])], graph.parameter(parameter).name);
          }
        }
      }
      if (sum.group.size() > 1) {
        order.emplace_back(-analysis.parameter_segments[static_cast<size_t>(parameter)].front(),
                           parameter);
      }
      sums.sums_.emplace(parameter, std::move(sum));
    }
  }
  // Descending segment, then parameter: a tied parameter waits for its lowest use, which comes
  // last.
  std::sort(order.begin(), order.end());
  for (const auto& [segment, parameter] : order) {
    sums.queue_.push_back(parameter);
  }
  return sums;
}

GradientSums::Sum GradientSums::MakeSum(const GraphAnalysis& analysis,
                                        const Plan& plan,
                                        ParameterId parameter) const {
  struct Member {
    std::vector<int> uses;
    const Pipeline* pipeline = nullptr;
  };
  std::map<int, Member> members;
  for (const Pipeline& pipeline : plan.pipelines) {
    const auto holder = [&](int segment) -> Member& {
      const int stage = StageOf(pipeline, segment);
      Member& member = members[pipeline.stages[static_cast<size_t>(stage)].worker()];
      member.pipeline = &pipeline;
      return member;
    };
    for (const int segment : analysis.parameter_segments[static_cast<size_t>(parameter)]) {
      holder(segment);
    }
    for (const GradientUse& use : analysis.uses[static_cast<size_t>(parameter)]) {
      holder(use.segment).uses.push_back(use.use);
    }
  }
  Sum sum;
  for (auto& [rank, member] : members) {
    std::sort(member.uses.begin(), member.uses.end());
    std::vector<TreeNode> nodes;
    for (const int use : member.uses) {
      const int64_t first = use * leaves_ + member.pipeline->first_microbatch;
      const std::vector<TreeNode> cover = CoverRange(first, first + member.pipeline->microbatches);
      nodes.insert(nodes.end(), cover.begin(), cover.end());
    }
    sum.group.push_back(rank);
    sum.contributions.push_back(std::move(nodes));
    if (rank == rank_) {
      sum.missing = static_cast<int64_t>(member.uses.size()) * member.pipeline->microbatches;
    }
  }
  return sum;
}

void GradientSums::Add(
    ParameterId parameter, int use, int microbatch, SlotId slot, ProgramBuilder& out) {
  Sum& sum = sums_.at(parameter);
  std::vector<Partial>& partials = sum.partials[exact_ ? use : 0];
  if (exact_) {
    Partial next{.node = {.level = 0, .index = use * leaves_ + microbatch}, .slot = slot};
    while (!partials.empty() && (next.node.index & 1) == 1 &&
           partials.back().node ==
               TreeNode{.level = next.node.level, .index = next.node.index - 1}) {
      out.Fold(partials.back().slot, next.slot);
      next = {.node = {.level = next.node.level + 1, .index = next.node.index >> 1},
              .slot = partials.back().slot};
      partials.pop_back();
    }
    partials.push_back(next);
  } else if (partials.empty()) {
    partials.push_back({.node = {}, .slot = slot});
  } else {
    out.Fold(partials.front().slot, slot);
  }
  HEDDLE_CHECK(sum.missing > 0, "parameter {} has too many contributions", parameter);
  --sum.missing;
  if (sum.missing == 0 && sum.group.size() == 1) {
    FoldAll(sum, out);
  }
  IssueReady(out);
}

void GradientSums::FoldAll(Sum& sum, ProgramBuilder& out) const {
  std::vector<TreeNode> nodes;
  std::vector<SlotId> slots;
  for (const auto& [use, partials] : sum.partials) {
    for (const Partial& partial : partials) {
      nodes.push_back(partial.node);
      slots.push_back(partial.slot);
    }
  }
  for (const Fold& fold : FoldOrder(nodes)) {
    out.Fold(slots[static_cast<size_t>(fold.left)], slots[static_cast<size_t>(fold.right)]);
  }
  sum.gradient = slots.front();
}

void GradientSums::IssueReady(ProgramBuilder& out) {
  while (!queue_.empty() && sums_.at(queue_.front()).missing == 0) {
    Reduce(queue_.front(), sums_.at(queue_.front()), out);
    queue_.pop_front();
  }
}

void GradientSums::Reduce(ParameterId parameter, Sum& sum, ProgramBuilder& out) const {
  const graph::Parameter& logical = graph_->parameter(parameter);
  sum.gradient = out.NewSlot(logical.gradients.front(), -1,
                             {.dtype = graph_->master_dtype(), .shape = logical.shape});
  Instruction instruction{.code = Code::kReduce,
                          .outputs = {sum.gradient},
                          .tag = ReduceTag(parameter),
                          .parameter = parameter,
                          .group = sum.group};
  if (exact_) {
    instruction.contributions = sum.contributions;
  }
  for (const auto& [use, partials] : sum.partials) {
    for (const Partial& partial : partials) {
      instruction.inputs.push_back(partial.slot);
    }
  }
  const std::vector<SlotId> inputs = instruction.inputs;
  out.Emit(std::move(instruction));
  for (const SlotId input : inputs) {
    out.Free(input);
  }
}

std::map<ParameterId, SlotId> GradientSums::Finish(ProgramBuilder& out) {
  IssueReady(out);
  std::map<ParameterId, SlotId> gradients;
  for (const auto& [parameter, sum] : sums_) {
    HEDDLE_CHECK(sum.gradient >= 0, "parameter {} is not complete", parameter);
    gradients.emplace(parameter, sum.gradient);
  }
  return gradients;
}

}  // namespace heddle::program
