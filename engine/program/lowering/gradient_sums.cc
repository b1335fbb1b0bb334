#include "engine/program/lowering/gradient_sums.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/check.h"
#include "engine/program/lowering/joint_sums.h"
#include "engine/program/slices.h"
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
                                          int rank,
                                          const StageTemplate& steps) {
  GradientSums sums(graph, plan, rank);
  const Position position = PositionOf(plan, rank);
  if (position.pipeline < 0 || !analysis.differentiated) {
    return sums;
  }
  const Pipeline& pipeline = plan.pipelines[static_cast<size_t>(position.pipeline)];
  const Stage& stage = pipeline.stages[static_cast<size_t>(position.stage)];
  sums.last_microbatch_ = pipeline.first_microbatch + pipeline.microbatches - 1;
  std::map<PieceKey, int64_t> contributed;
  for (const StageStep& step : steps.backward) {
    for (const StageContribution& one : step.contributes) {
      contributed[{one.parameter, one.piece}] += pipeline.microbatches;
    }
  }
  std::set<ParameterId> held;
  for (int segment = stage.first_segment; segment < stage.last_segment; ++segment) {
    const auto& list = analysis.segment_parameters[static_cast<size_t>(segment)];
    held.insert(list.begin(), list.end());
  }
  for (const ParameterId parameter : held) {
    HEDDLE_RETURN_IF_ERROR(sums.AddSums(analysis, plan, parameter, contributed));
  }
  // Descending segment, then parameter and piece: a tied parameter waits for its lowest use, which
  // comes last.
  std::vector<std::pair<int, PieceKey>> order;
  for (const auto& [key, sum] : sums.sums_) {
    if (sum.piece.holders.size() > 1) {
      order.emplace_back(-analysis.parameter_segments[static_cast<size_t>(key.first)].front(), key);
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<SingleSum> singles;
  for (const auto& [segment, key] : order) {
    const Sum& sum = sums.sums_.at(key);
    SingleSum single = SumOf(analysis, key.first,
                             ElementCount(sum.piece.box.extent) * SizeOf(graph.master_dtype()));
    single.alone = !sum.rows.empty();
    single.holders = sum.piece.holders;
    singles.push_back(std::move(single));
  }
  for (const std::vector<size_t>& collective : JoinSums(singles)) {
    std::vector<PieceKey>& keys = sums.queue_.emplace_back();
    for (const size_t i : collective) {
      keys.push_back(order[i].second);
    }
  }
  return sums;
}

Status GradientSums::AddSums(const GraphAnalysis& analysis,
                             const Plan& plan,
                             ParameterId parameter,
                             const std::map<PieceKey, int64_t>& contributed) {
  const std::vector<HeldPiece> pieces = PiecesOf(
      *graph_, plan, parameter, analysis.parameter_segments[static_cast<size_t>(parameter)]);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const HeldPiece& piece = pieces[i];
    if (!std::binary_search(piece.holders.begin(), piece.holders.end(), rank_)) {
      continue;
    }
    Sum sum{.piece = piece,
            .contributions = ContributionsOf(analysis, plan, parameter, piece),
            .rows = KeptRows(*graph_, plan, piece)};
    for (size_t h = 0; h < piece.holders.size() && piece.holders.size() > 1 && !exact_; ++h) {
      if (sum.contributions[h].empty()) {
        return InvalidArgumentError(
            "plan: worker {} holds parameter {} without a gradient of it, which relaxed "
            "determinism cannot reduce",
            plan.workers[static_cast<size_t>(piece.holders[h])], graph_->parameter(parameter).name);
      }
    }
    const PieceKey key(parameter, static_cast<int>(i));
    if (const auto found = contributed.find(key); found != contributed.end()) {
      sum.missing = found->second;
    }
    sums_.emplace(key, std::move(sum));
  }
  return Status::Ok();
}

// By holder, the tree nodes of what its stage computes.
std::vector<std::vector<TreeNode>> GradientSums::ContributionsOf(const GraphAnalysis& analysis,
                                                                 const Plan& plan,
                                                                 ParameterId parameter,
                                                                 const HeldPiece& piece) const {
  std::map<int, std::vector<TreeNode>> by_rank;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const GradientUse& use : analysis.uses[static_cast<size_t>(parameter)]) {
      const int stage = StageOf(pipeline, use.segment);
      const int64_t first = use.use * leaves_ + pipeline.first_microbatch;
      const std::vector<TreeNode> cover = CoverRange(first, first + pipeline.microbatches);
      for (const int rank : pipeline.stages[static_cast<size_t>(stage)].group) {
        std::vector<TreeNode>& nodes = by_rank[rank];
        nodes.insert(nodes.end(), cover.begin(), cover.end());
      }
    }
  }
  std::vector<std::vector<TreeNode>> contributions;
  for (const int holder : piece.holders) {
    contributions.push_back(std::move(by_rank[holder]));
  }
  return contributions;
}

void GradientSums::Add(PieceKey piece, int use, int microbatch, SlotId slot, ProgramBuilder& out) {
  Sum& sum = sums_.at(piece);
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
  HEDDLE_CHECK(sum.missing > 0, "parameter {} has too many contributions", piece.first);
  --sum.missing;
  if (sum.missing == 0 && sum.piece.holders.size() == 1) {
    FoldAll(sum, out);
  }
  if (microbatch == last_microbatch_) {
    IssueReady(out);
  }
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
  const auto is_complete = [&](PieceKey key) { return sums_.at(key).missing == 0; };
  while (!queue_.empty() && std::ranges::all_of(queue_.front(), is_complete)) {
    const std::vector<PieceKey> keys = std::move(queue_.front());
    queue_.pop_front();
    std::vector<SlotId> read;
    for (size_t part = 0; part < keys.size(); ++part) {
      Instruction reduction = Reduction(keys[part], sums_.at(keys[part]), out);
      reduction.part = static_cast<int>(part);
      reduction.parts = static_cast<int>(keys.size());
      read.insert(read.end(), reduction.inputs.begin(), reduction.inputs.end());
      out.Emit(std::move(reduction));
    }
    for (const SlotId slot : read) {
      out.Free(slot);
    }
  }
}

Instruction GradientSums::Reduction(PieceKey key, Sum& sum, ProgramBuilder& out) const {
  const auto& [parameter, piece] = key;
  Instruction instruction{.code = Code::kReduce,
                          .tag = ReduceTag(parameter, piece),
                          .parameter = parameter,
                          .piece = piece,
                          .group = sum.piece.holders};
  if (exact_) {
    instruction.contributions = sum.contributions;
  }
  Shape shape = sum.piece.box.extent;
  for (size_t h = 0; h < sum.rows.size(); ++h) {
    instruction.rows.push_back(sum.rows[h].end - sum.rows[h].begin);
    if (sum.piece.holders[h] == rank_) {
      shape[0] = instruction.rows.back();
    }
  }
  if (ElementCount(shape) > 0) {
    sum.gradient = out.NewSlot(graph_->parameter(parameter).gradients.front(), -1,
                               {.dtype = graph_->master_dtype(), .shape = std::move(shape)});
    instruction.outputs = {sum.gradient};
  }
  for (const auto& [use, partials] : sum.partials) {
    for (const Partial& partial : partials) {
      instruction.inputs.push_back(partial.slot);
    }
  }
  return instruction;
}

std::map<PieceKey, SlotId> GradientSums::Finish(ProgramBuilder& out) {
  IssueReady(out);
  std::map<PieceKey, SlotId> gradients;
  for (const auto& [key, sum] : sums_) {
    HEDDLE_CHECK(sum.gradient >= 0 || !sum.rows.empty(), "parameter {} is not complete", key.first);
    if (sum.gradient >= 0) {
      gradients.emplace(key, sum.gradient);
    }
  }
  return gradients;
}

}  // namespace heddle::program
