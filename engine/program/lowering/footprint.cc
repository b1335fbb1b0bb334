#include "engine/program/lowering/footprint.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "base/tensor/reduction_tree.h"
#include "engine/program/lowering/stage_template.h"
#include "engine/program/memory.h"
#include "engine/program/slices.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::ParameterId;

/// One backward of a stage, with its additions and reductions.
class Footprint::Walk {
 public:
  Walk(const Trace& trace, bool exact, bool shared)
      : trace_(trace),
        exact_(exact),
        shared_(shared) {}

  /// The largest sum of live bytes.
  int64_t Peak(const Situation& situation) {
    situation_ = situation;
    live_ = situation.live;
    peak_ = live_;
    for (const Gradient& gradient : trace_.gradients) {
      missing_.push_back(gradient.uses);
    }
    for (size_t s = 0; s < trace_.backward.size(); ++s) {
      const Step& step = trace_.backward[s];
      Allocate(step.allocated);
      live_ -= step.freed;
      const size_t end = s + 1 < trace_.backward.size() ? trace_.backward[s + 1].contributions
                                                        : trace_.contributions.size();
      for (size_t c = step.contributions; c < end; ++c) {
        Contribute(trace_.contributions[c]);
      }
    }
    if (situation.last) {
      IssueReady();
    }
    return peak_;
  }

 private:
  void Allocate(int64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_ + reducing_);
  }

  bool IsReduced(const Gradient& gradient) const { return shared_ || gradient.tied; }

  /// Bytes of all partial sums after the microbatch.
  int64_t SumsAfter(const Gradient& gradient) const {
    return int64_t{exact_ ? gradient.uses : 1} * situation_.after * gradient.contribution_bytes;
  }

  /// As GradientSums does: the contribution is added to what there is, or kept beside it.
  void Contribute(size_t index) {
    const Gradient& gradient = trace_.gradients[index];
    const bool first = missing_[index] == gradient.uses;
    const int kept = exact_ || first ? situation_.after - situation_.before : 0;
    live_ += (kept - 1) * gradient.contribution_bytes;
    --missing_[index];
    if (!situation_.last) {
      return;
    }
    if (missing_[index] == 0 && !IsReduced(gradient)) {
      live_ -= SumsAfter(gradient) - gradient.contribution_bytes;
    }
    IssueReady();
  }

  void IssueReady() {
    for (; issued_ < trace_.queue.size(); ++issued_) {
      const std::vector<size_t>& next = trace_.queue[issued_];
      if (!IsReduced(trace_.gradients[next.front()])) {
        continue;
      }
      if (std::ranges::any_of(next, [&](size_t index) { return missing_[index] > 0; })) {
        break;
      }
      for (const size_t index : next) {
        Reduce(trace_.gradients[index]);
      }
    }
  }

  void Reduce(const Gradient& gradient) {
    Allocate(gradient.sum_bytes);
    live_ -= SumsAfter(gradient);
    reducing_ += SumsAfter(gradient);
  }

  const Trace& trace_;
  const bool exact_;
  const bool shared_;
  Situation situation_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
  int64_t reducing_ = 0;      ///< What reductions read, which counts until the vote.
  std::vector<int> missing_;  ///< Contributions of the microbatch still to come, by gradient.
  size_t issued_ = 0;         ///< Reductions.
};

Result<Footprint> Footprint::Create(const graph::Graph& graph,
                                    Determinism determinism,
                                    bool divides_optimizer) {
  HEDDLE_ASSIGN_OR_RETURN(GraphAnalysis analysis, Analyze(graph));
  return Footprint(graph, std::move(analysis), determinism, divides_optimizer);
}

Footprint::Footprint(const graph::Graph& graph,
                     GraphAnalysis analysis,
                     Determinism determinism,
                     bool divides_optimizer)
    : graph_(&graph),
      analysis_(std::move(analysis)),
      exact_(determinism == Determinism::kExact),
      divides_(divides_optimizer) {}

int Footprint::Sums(const FootprintStage& stage, int microbatches) const {
  if (!exact_) {
    return microbatches > 0 ? 1 : 0;
  }
  const int64_t first = stage.first_microbatch;
  return static_cast<int>(CoverRange(first, first + microbatches).size());
}

int64_t Footprint::PeakBytes(const FootprintStage& stage) {
  return PeakOf(TraceOf(stage), stage);
}

Result<int64_t> Footprint::PeakBytes(const Plan& plan, int rank) const {
  const Position position = PositionOf(plan, rank);
  if (position.pipeline < 0) {
    return 0;
  }
  const Pipeline& pipeline = plan.pipelines[static_cast<size_t>(position.pipeline)];
  const Stage& it = pipeline.stages[static_cast<size_t>(position.stage)];
  const FootprintStage stage{
      .first_segment = it.first_segment,
      .last_segment = it.last_segment,
      .recompute = it.recompute,
      .warm_up = pipeline.WarmUp(static_cast<size_t>(position.stage)),
      .first_microbatch = pipeline.first_microbatch,
      .microbatches = pipeline.microbatches,
      .pipelines = it.layout < 0 ? static_cast<int>(plan.pipelines.size()) : 1};
  if (it.layout < 0 && !plan.divides_optimizer) {
    return PeakOf(MakeTrace(stage), stage);
  }
  Trace trace;
  AddGradients(plan, it, rank, trace);
  if (it.layout < 0) {
    AddSteps(BuildStageTemplate(*graph_, analysis_, pipeline, position.stage), *graph_, trace);
    return PeakOf(trace, stage);
  }
  HEDDLE_ASSIGN_OR_RETURN(const StageGraph group, BuildStageGraph(*graph_, plan, it));
  AddSteps(BuildStageTemplate(*graph_, analysis_, pipeline, position.stage, group, position.member),
           graph::Localise(group.sharded, position.member).graph, trace);
  return PeakOf(trace, stage);
}

int64_t Footprint::PeakOf(const Trace& trace, const FootprintStage& stage) const {
  const int count = stage.microbatches;
  int64_t sum = 0;  // A partial sum of every use.
  for (const Gradient& gradient : trace.gradients) {
    sum += int64_t{exact_ ? gradient.uses : 1} * gradient.contribution_bytes;
  }
  int64_t peak = 0;
  const auto forward = [&](int kept, int sums, int losses) {
    peak =
        std::max(peak, kept * trace.kept + sums * sum + losses * trace.loss + trace.forward_peak);
  };
  for (int i = 0; i < std::min(stage.warm_up, count); ++i) {
    forward(i, 0, i);
  }
  // Losses grow, so that the last backward of those that find as much else has the largest peak.
  std::map<std::tuple<int, int, int>, Situation> situations;
  int before = 0;
  for (int i = 0; i < count; ++i) {
    if (i + stage.warm_up < count) {
      forward(stage.warm_up, before, i + stage.warm_up);
    }
    const int after = Sums(stage, i + 1);
    const int kept = std::min(stage.warm_up + 1, count - i);
    const int losses = std::min(count, i + stage.warm_up + 1);
    const bool last = i + 1 == count;
    situations[{last ? 0 : kept, before, after}] = {
        .live = kept * trace.kept + losses * trace.loss + before * sum,
        .before = before,
        .after = after,
        .last = last};
    before = after;
  }
  for (const auto& [key, situation] : situations) {
    peak = std::max(peak, Walk(trace, exact_, stage.pipelines > 1).Peak(situation));
  }
  return trace.state + peak;
}

const Footprint::Trace& Footprint::TraceOf(const FootprintStage& stage) {
  const auto key = std::tuple(stage.first_segment, stage.last_segment, stage.recompute,
                              divides_ ? stage.pipelines : 1);
  const auto found = traces_.find(key);
  return found != traces_.end() ? found->second
                                : traces_.emplace(key, MakeTrace(stage)).first->second;
}

Footprint::Trace Footprint::MakeTrace(const FootprintStage& stage) const {
  // Who runs the other segments changes no byte of this stage: they are one stage before it and one
  // behind it.
  Pipeline pipeline;
  const auto add = [&](int begin, int end, bool recompute) {
    if (begin < end) {
      pipeline.stages.push_back({.group = {static_cast<int>(pipeline.stages.size())},
                                 .first_segment = begin,
                                 .last_segment = end,
                                 .recompute = recompute});
    }
  };
  add(0, stage.first_segment, false);
  const int index = static_cast<int>(pipeline.stages.size());
  add(stage.first_segment, stage.last_segment, stage.recompute);
  add(stage.last_segment, static_cast<int>(graph_->segments.size()), false);
  const StageTemplate steps = BuildStageTemplate(*graph_, analysis_, pipeline, index);
  Trace trace;
  AddGradients(stage, trace);
  AddSteps(steps, *graph_, trace);
  return trace;
}

void Footprint::AddSteps(const StageTemplate& steps, const graph::Graph& graph, Trace& trace) {
  std::map<PieceKey, size_t> index_of;
  for (size_t g = 0; g < trace.gradients.size(); ++g) {
    index_of.emplace(trace.gradients[g].key, g);
  }
  const auto bytes = [&](const std::vector<int>& values) {
    int64_t sum = 0;
    for (const int value : values) {
      sum += graph.tensor(steps.values[static_cast<size_t>(value)]).type.bytes();
    }
    return sum;
  };
  trace.loss = steps.loss < 0 ? 0 : bytes({steps.loss});
  for (const StageStep& step : steps.forward) {
    trace.kept += bytes(step.outputs);
    trace.forward_peak = std::max(trace.forward_peak, trace.kept);
    trace.kept -= bytes(step.frees);
  }
  trace.kept -= trace.loss;
  for (const StageStep& step : steps.backward) {
    trace.backward.push_back({.allocated = bytes(step.outputs),
                              .freed = bytes(step.frees),
                              .contributions = trace.contributions.size()});
    for (const StageContribution& one : step.contributes) {
      const size_t g = index_of.at({one.parameter, one.piece});
      trace.contributions.push_back(g);
      trace.gradients[g].contribution_bytes = bytes({one.value});
      ++trace.gradients[g].uses;
    }
  }
}

void Footprint::AddGradients(const FootprintStage& stage, Trace& trace) const {
  std::set<ParameterId> held;
  for (int s = stage.first_segment; s < stage.last_segment; ++s) {
    const auto& parameters = analysis_.segment_parameters[static_cast<size_t>(s)];
    held.insert(parameters.begin(), parameters.end());
  }
  Program holder;
  for (const ParameterId id : held) {
    const auto& segments = analysis_.parameter_segments[static_cast<size_t>(id)];
    Piece own{.parameter = id, .box = WholeBox(graph_->parameter(id).shape)};
    if (divides_) {
      const std::vector<graph::Range> rows = RowsByHolder(*graph_, own.box, stage.pipelines);
      if (!rows.empty()) {
        own.kept = RowsOf(own.box, *std::ranges::max_element(rows, {}, [](const graph::Range& it) {
                            return it.end - it.begin;
                          }));
      }
    }
    Gradient gradient = GradientOf(own);
    gradient.tied = segments.front() < stage.first_segment || segments.back() >= stage.last_segment;
    trace.gradients.push_back(std::move(gradient));
    holder.pieces.push_back(std::move(own));
  }
  trace.state = StateBytes(*graph_, holder);
  OrderReductions(trace);
}

void Footprint::AddGradients(const Plan& plan, const Stage& stage, int rank, Trace& trace) const {
  std::set<ParameterId> held;
  for (int s = stage.first_segment; s < stage.last_segment; ++s) {
    const auto& parameters = analysis_.segment_parameters[static_cast<size_t>(s)];
    held.insert(parameters.begin(), parameters.end());
  }
  Program holder;
  for (const ParameterId id : held) {
    const std::vector<HeldPiece> pieces =
        PiecesOf(*graph_, plan, id, analysis_.parameter_segments[static_cast<size_t>(id)]);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const HeldPiece& piece = pieces[i];
      if (!std::binary_search(piece.holders.begin(), piece.holders.end(), rank)) {
        continue;
      }
      const int index = static_cast<int>(i);
      Piece own{.parameter = id, .index = index, .box = piece.box};
      const std::vector<graph::Range> rows = KeptRows(*graph_, plan, piece);
      if (!rows.empty()) {
        const auto position = std::ranges::find(piece.holders, rank) - piece.holders.begin();
        own.kept = RowsOf(piece.box, rows[static_cast<size_t>(position)]);
      }
      Gradient gradient = GradientOf(own);
      gradient.tied = piece.holders.size() > 1;
      gradient.single.holders = piece.holders;
      trace.gradients.push_back(std::move(gradient));
      holder.pieces.push_back(std::move(own));
    }
  }
  trace.state = StateBytes(*graph_, holder);
  OrderReductions(trace);
}

Footprint::Gradient Footprint::GradientOf(const Piece& piece) const {
  const int64_t width = SizeOf(graph_->master_dtype());
  SingleSum single = SumOf(analysis_, piece.parameter, ElementCount(piece.box.extent) * width);
  single.alone = piece.kept.has_value();
  return {.key = {piece.parameter, piece.index},
          .sum_bytes = ElementCount(KeptBox(piece).extent) * width,
          .single = std::move(single)};
}

void Footprint::OrderReductions(Trace& trace) const {
  std::vector<size_t> order(trace.gradients.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t g) {
    return analysis_.parameter_segments[static_cast<size_t>(trace.gradients[g].key.first)].front();
  });
  std::vector<SingleSum> sums;
  for (const size_t g : order) {
    sums.push_back(trace.gradients[g].single);
  }
  for (const std::vector<size_t>& collective : JoinSums(sums)) {
    std::vector<size_t>& gradients = trace.queue.emplace_back();
    for (const size_t i : collective) {
      gradients.push_back(order[i]);
    }
  }
}

}  // namespace heddle::program
