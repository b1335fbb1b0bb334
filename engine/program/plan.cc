#include "engine/program/plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/program/pieces.h"
#include "engine/program/stages.h"

namespace heddle::program {

namespace {

// Message tags keep the microbatch in 24 bits (program.h).
constexpr int kMicrobatchesMax = 1 << 24;

Status ValidateWorkers(const Plan& plan) {
  if (plan.workers.empty()) {
    return InvalidArgumentError("plan: no workers");
  }
  std::set<std::string_view> names;
  for (const std::string& worker : plan.workers) {
    if (worker.empty()) {
      return InvalidArgumentError("plan: a worker has an empty name");
    }
    if (!names.insert(worker).second) {
      return InvalidArgumentError("plan: worker '{}' appears twice", worker);
    }
  }
  const size_t count = plan.workers.size();
  if (!plan.predicted_peak_bytes.empty() && plan.predicted_peak_bytes.size() != count) {
    return InvalidArgumentError("plan: predicted_peak_bytes has {} entries for {} workers",
                                plan.predicted_peak_bytes.size(), count);
  }
  if (!plan.predicted_process_bytes.empty() && plan.predicted_process_bytes.size() != count) {
    return InvalidArgumentError("plan: predicted_process_bytes has {} entries for {} workers",
                                plan.predicted_process_bytes.size(), count);
  }
  if (!plan.transports.empty() && plan.transports.size() != count) {
    return InvalidArgumentError("plan: transports has {} rows for {} workers",
                                plan.transports.size(), count);
  }
  for (size_t row = 0; row < plan.transports.size(); ++row) {
    if (plan.transports[row].size() != count) {
      return InvalidArgumentError("plan: transports[{}] has {} entries for {} workers", row,
                                  plan.transports[row].size(), count);
    }
  }
  return Status::Ok();
}

// Several workers, and only they, have a layout.
Status ValidateLayoutOf(const Plan& plan, const Stage& stage) {
  const size_t workers = stage.group.size();
  if (workers == 1) {
    return stage.layout == -1 ? Status::Ok() : InvalidArgumentError("one worker needs no layout");
  }
  if (stage.layout < 0 || stage.layout >= static_cast<int>(plan.layouts.size())) {
    return InvalidArgumentError("a group of {} workers has layout {} among {}", workers,
                                stage.layout, plan.layouts.size());
  }
  const int members = graph::MembersOf(plan.layouts[static_cast<size_t>(stage.layout)]);
  if (members != static_cast<int>(workers)) {
    return InvalidArgumentError("a group of {} workers has layout {}, which is for {}", workers,
                                stage.layout, members);
  }
  if (plan.determinism == Determinism::kExact) {
    return InvalidArgumentError("sums over a group of {} workers are relaxed, the plan is exact",
                                workers);
  }
  return Status::Ok();
}

Status ValidateGroup(const Plan& plan, const Stage& stage, std::vector<bool>& used) {
  if (stage.group.empty()) {
    return InvalidArgumentError("it has no worker");
  }
  for (const int worker : stage.group) {
    if (worker < 0 || static_cast<size_t>(worker) >= plan.workers.size()) {
      return InvalidArgumentError("worker {} is not in 0..{}", worker, plan.workers.size() - 1);
    }
    const auto index = static_cast<size_t>(worker);
    if (used[index]) {
      return InvalidArgumentError("worker {} {}", plan.workers[index],
                                  std::ranges::count(stage.group, worker) > 1
                                      ? "is in its group twice"
                                      : "holds two stages");
    }
    used[index] = true;
  }
  return ValidateLayoutOf(plan, stage);
}

// Stages of one pipeline cover [0, segments) in order; `used` collects the workers of all
// pipelines.
Status ValidateStages(const Plan& plan, size_t number, int segments, std::vector<bool>& used) {
  const Pipeline& pipeline = plan.pipelines[number];
  int next = 0;
  for (size_t s = 0; s < pipeline.stages.size(); ++s) {
    const Stage& stage = pipeline.stages[s];
    HEDDLE_RETURN_IF_ERROR(
        ValidateGroup(plan, stage, used).WithContext("plan: pipeline {} stage {}", number, s));
    if (stage.first_segment != next || stage.last_segment <= stage.first_segment ||
        stage.last_segment > segments) {
      return InvalidArgumentError(
          "plan: pipeline {} stage {}: segments [{}, {}) do not continue at {} of {}", number, s,
          stage.first_segment, stage.last_segment, next, segments);
    }
    next = stage.last_segment;
  }
  if (next != segments) {
    return InvalidArgumentError("plan: pipeline {} ends at segment {} of {}", number, next,
                                segments);
  }
  return Status::Ok();
}

// A stage's first backward needs one forward more than its warm-up: the stage before must have sent
// them by then.
Status ValidateWarmUps(const Plan& plan, size_t number) {
  const Pipeline& pipeline = plan.pipelines[number];
  for (size_t s = 0; s < pipeline.stages.size(); ++s) {
    const int ahead = pipeline.stages[s].ahead;
    const int most = s + 1 == pipeline.stages.size() ? 0 : kMicrobatchesMax;
    if (ahead < 0 || ahead > most) {
      return InvalidArgumentError("plan: pipeline {} stage {}: {} microbatches ahead, not in 0..{}",
                                  number, s, ahead, most);
    }
    if (s > 0 && pipeline.WarmUp(s) > pipeline.WarmUp(s - 1)) {
      return InvalidArgumentError(
          "plan: pipeline {} stage {}: {} microbatches ahead would wait for ever for stage {}, "
          "which has {} ahead",
          number, s, ahead, s - 1, pipeline.stages[s - 1].ahead);
    }
  }
  return Status::Ok();
}

Status ValidateLayoutsUsed(const Plan& plan) {
  std::vector<bool> used(plan.layouts.size(), false);
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      if (stage.layout >= 0) {
        used[static_cast<size_t>(stage.layout)] = true;
      }
    }
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  return unused == used.end()
             ? Status::Ok()
             : InvalidArgumentError("plan: no stage has layout {}", unused - used.begin());
}

Status ValidateMicrobatches(const Plan& plan) {
  std::vector<std::pair<int, int>> ranges;
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    if (pipeline.microbatches < 1 || pipeline.microbatches > kMicrobatchesMax ||
        pipeline.first_microbatch < 0 || pipeline.first_microbatch >= kMicrobatchesMax) {
      return InvalidArgumentError("plan: pipeline {}: {} microbatches from {} are out of range", p,
                                  pipeline.microbatches, pipeline.first_microbatch);
    }
    ranges.emplace_back(pipeline.first_microbatch, pipeline.microbatches);
  }
  std::sort(ranges.begin(), ranges.end());
  int next = 0;
  for (const auto& [first, count] : ranges) {
    if (first != next) {
      return InvalidArgumentError(
          "plan: microbatches {}: a pipeline's range starts at {}, expected {}",
          first < next ? "overlap" : "have a gap", first, next);
    }
    next += count;
    if (next > kMicrobatchesMax) {
      return InvalidArgumentError("plan: more than {} microbatches", kMicrobatchesMax);
    }
  }
  return Status::Ok();
}

std::string GroupNames(const Plan& plan, const Group& group) {
  std::string text;
  for (const int rank : group) {
    const auto worker = static_cast<size_t>(rank);
    text += text.empty() ? "" : " + ";
    text += worker < plan.workers.size() ? plan.workers[worker] : "?";
  }
  return text;
}

std::string SegmentRange(const graph::Graph& graph, const Stage& stage) {
  const auto name = [&](int segment) -> std::string {
    const auto index = static_cast<size_t>(segment);
    return segment >= 0 && index < graph.segments.size() ? graph.segments[index].name
                                                         : fmt::format("segment {}", segment);
  };
  const std::string first = name(stage.first_segment);
  return stage.last_segment - stage.first_segment <= 1
             ? first
             : fmt::format("{} .. {}", first, name(stage.last_segment - 1));
}

}  // namespace

int Plan::microbatches() const {
  int sum = 0;
  for (const Pipeline& pipeline : pipelines) {
    sum += pipeline.microbatches;
  }
  return sum;
}

std::vector<int> Plan::IdleWorkers() const {
  std::vector<bool> used(workers.size(), false);
  for (const Pipeline& pipeline : pipelines) {
    for (const Stage& stage : pipeline.stages) {
      for (const int worker : stage.group) {
        if (worker >= 0 && static_cast<size_t>(worker) < used.size()) {
          used[static_cast<size_t>(worker)] = true;
        }
      }
    }
  }
  std::vector<int> idle;
  for (size_t worker = 0; worker < used.size(); ++worker) {
    if (!used[worker]) {
      idle.push_back(static_cast<int>(worker));
    }
  }
  return idle;
}

Status ValidatePlan(const Plan& plan, int segments) {
  HEDDLE_RETURN_IF_ERROR(ValidateWorkers(plan));
  if (segments < 1) {
    return InvalidArgumentError("plan: the graph has no segments");
  }
  if (plan.pipelines.empty()) {
    return InvalidArgumentError("plan: no pipelines");
  }
  std::vector<bool> used(plan.workers.size(), false);
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    HEDDLE_RETURN_IF_ERROR(ValidateStages(plan, p, segments, used));
    HEDDLE_RETURN_IF_ERROR(ValidateWarmUps(plan, p));
  }
  HEDDLE_RETURN_IF_ERROR(ValidateLayoutsUsed(plan));
  return ValidateMicrobatches(plan);
}

Status ValidatePlan(const Plan& plan, const graph::Graph& graph) {
  HEDDLE_RETURN_IF_ERROR(ValidatePlan(plan, static_cast<int>(graph.segments.size())));
  for (size_t i = 0; i < plan.layouts.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(ValidateLayout(graph, LayoutFor(graph, plan.layouts[i]), /*exact=*/false)
                               .WithContext("plan: layout {}", i));
  }
  if (plan.divides_optimizer && graph.optimizer.slices < 2) {
    return InvalidArgumentError(
        "plan: it divides the optimizer, and the job's optimizer has one slice");
  }
  return Status::Ok();
}

graph::Layout LayoutFor(const graph::Graph& graph, const graph::Layout& layout) {
  const bool differentiated = std::ranges::any_of(
      graph.parameters,
      [](const graph::Parameter& parameter) { return !parameter.gradients.empty(); });
  if (differentiated) {
    return layout;
  }
  std::set<std::string_view> names;
  for (const graph::Tensor& tensor : graph.tensors) {
    names.insert(tensor.name);
  }
  graph::Layout fitting = layout;
  std::erase_if(fitting.tensors, [&](const auto& entry) { return names.count(entry.first) == 0; });
  return fitting;
}

int Stage::worker() const {
  HEDDLE_CHECK(group.size() == 1, "{} workers run the stage", group.size());
  return group.front();
}

int Pipeline::WarmUp(size_t stage) const {
  const int later = static_cast<int>(stages.size() - stage) - 1;
  return std::min(later + stages[stage].ahead, microbatches);
}

Plan SingleWorkerPlan(const std::string& worker, int segments, int microbatches) {
  Plan plan;
  plan.workers = {worker};
  plan.pipelines = {{.stages = {{.group = {0}, .first_segment = 0, .last_segment = segments}},
                     .first_microbatch = 0,
                     .microbatches = microbatches}};
  return plan;
}

std::string Describe(const Plan& plan, const graph::Graph& graph) {
  std::string text =
      fmt::format("generation {}: {} worker{}, {} pipeline{}, {} microbatches, {}", plan.generation,
                  plan.workers.size(), plan.workers.size() == 1 ? "" : "s", plan.pipelines.size(),
                  plan.pipelines.size() == 1 ? "" : "s", plan.microbatches(),
                  plan.determinism == Determinism::kExact ? "exact" : "relaxed");
  if (plan.divides_optimizer) {
    text += ", the optimizer divided";
  }
  if (plan.predicted_step_seconds > 0) {
    text += fmt::format(", {:.4g} s a step predicted", plan.predicted_step_seconds);
  }
  text += '\n';
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    text += fmt::format("pipeline {}: {} microbatch{} from {}: ", p, pipeline.microbatches,
                        pipeline.microbatches == 1 ? "" : "es", pipeline.first_microbatch);
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Stage& stage = pipeline.stages[s];
      text += fmt::format("{}{} [{}{}{}{}]", s == 0 ? "" : " -> ", GroupNames(plan, stage.group),
                          SegmentRange(graph, stage), stage.recompute ? ", recomputed" : "",
                          stage.ahead > 0 ? fmt::format(", {} ahead", stage.ahead) : "",
                          stage.layout >= 0 ? fmt::format(", layout {}", stage.layout) : "");
    }
    text += '\n';
  }
  const std::vector<int> idle = plan.IdleWorkers();
  for (size_t i = 0; i < idle.size(); ++i) {
    text +=
        fmt::format("{}{}", i == 0 ? "idle: " : ", ", plan.workers[static_cast<size_t>(idle[i])]);
  }
  return idle.empty() ? text : text + '\n';
}

std::vector<std::vector<int>> ParameterHolders(const graph::Graph& graph, const Plan& plan) {
  const std::vector<std::vector<int>> segments = ParameterSegments(graph);
  std::vector<std::vector<int>> holders(graph.parameters.size());
  for (size_t p = 0; p < holders.size(); ++p) {
    for (const HeldPiece& piece :
         PiecesOf(graph, plan, static_cast<graph::ParameterId>(p), segments[p])) {
      holders[p].insert(holders[p].end(), piece.holders.begin(), piece.holders.end());
    }
    std::sort(holders[p].begin(), holders[p].end());
    holders[p].erase(std::unique(holders[p].begin(), holders[p].end()), holders[p].end());
  }
  return holders;
}

}  // namespace heddle::program
