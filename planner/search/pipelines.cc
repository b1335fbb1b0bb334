#include "planner/search/pipelines.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace heddle::planner {
namespace {

constexpr size_t kMaxLabels = 10;
constexpr double kClose = 1e-4;  // Relative difference below which labels count as equal.

/// A suffix of a pipeline.
struct Label {
  Pace pace;
  int stages = 1;
  ClassStage stage;
  const Label* next = nullptr;
};

bool Worse(const Pace& a, const Pace& than) {
  return a.period >= than.period * (1 - kClose) && a.fill >= than.fill * (1 - kClose);
}

void Insert(std::vector<Label>& front, const Label& label) {
  for (const Label& other : front) {
    if (Worse(label.pace, other.pace)) {
      return;
    }
  }
  std::erase_if(front, [&](const Label& other) {
    return other.pace.period >= label.pace.period && other.pace.fill >= label.pace.fill;
  });
  front.push_back(label);
  if (front.size() > kMaxLabels) {
    front.erase(std::max_element(front.begin(), front.end(), [](const Label& a, const Label& b) {
      return a.pace.period < b.pace.period;
    }));
  }
}

/// Puts a stage before a suffix.
Label Extend(const PipelineInput& input, const ClassStage& stage, const Label* next) {
  const SegmentTable& table = *input.table;
  const WorkerCosts& costs = (*input.costs)[static_cast<size_t>(stage.worker_class)];
  const double seconds = costs.Stage(stage.first_segment, stage.last_segment, stage.recompute);
  Label label{.pace = {.period = seconds, .fill = seconds}, .stage = stage, .next = next};
  if (next == nullptr) {
    return label;
  }
  const size_t cut = static_cast<size_t>(stage.last_segment);
  const comm::Link down = input.link(stage.worker_class, next->stage.worker_class);
  const comm::Link up = input.link(next->stage.worker_class, stage.worker_class);
  const double forward = static_cast<double>(table.forward_bytes[cut]) / down.bytes_per_second;
  const double backward = static_cast<double>(table.backward_bytes[cut]) / up.bytes_per_second;
  label.stages = next->stages + 1;
  label.pace.fill =
      next->pace.fill + seconds + forward + backward + down.latency_seconds + up.latency_seconds;
  label.pace.period = std::max({next->pace.period, seconds, forward, backward,
                                label.pace.fill / static_cast<double>(label.stages)});
  return label;
}

/// True if the stage fits in memory; switches recomputation on only if it does not fit without.
bool Admit(const PipelineInput& input, int depth, ClassStage& stage) {
  for (const bool recompute : {false, true}) {
    stage.recompute = recompute;
    if (input.fits(stage.worker_class, stage.first_segment, stage.last_segment, depth, recompute)) {
      return true;
    }
  }
  return false;
}

void ExtendAll(const PipelineInput& input,
               const ClassStage& stage,
               const std::vector<Label>& suffixes,
               std::vector<Label>& front) {
  for (const Label& suffix : suffixes) {
    Insert(front, Extend(input, stage, &suffix));
  }
}

std::vector<ClassStage> StagesOf(const Label* label) {
  std::vector<ClassStage> stages;
  for (; label != nullptr; label = label->next) {
    stages.push_back(label->stage);
  }
  return stages;
}

/// Lists the compositions of 1 … max_depth workers within the counts, by number of workers. Stops
/// before the number with which there would be more than max_compositions; always lists those of
/// one worker.
std::vector<std::vector<Composition>> ListCompositions(const PipelineInput& input) {
  std::vector<std::vector<Composition>> by_depth = {{Composition(input.counts.size(), 0)}};
  int64_t total = 0;
  for (int depth = 1; depth <= input.max_depth; ++depth) {
    std::map<Composition, bool> level;
    for (const Composition& shorter : by_depth.back()) {
      for (size_t c = 0; c < input.counts.size(); ++c) {
        if (shorter[c] < input.counts[c]) {
          Composition longer = shorter;
          ++longer[c];
          level.emplace(std::move(longer), true);
        }
      }
    }
    total += static_cast<int64_t>(level.size());
    if (level.empty() || (depth > 1 && total > input.max_compositions)) {
      break;
    }
    by_depth.emplace_back();
    for (const auto& entry : level) {
      by_depth.back().push_back(entry.first);
    }
  }
  by_depth.erase(by_depth.begin());
  return by_depth;
}

/// Pareto fronts of suffixes, indexed [class][first segment].
using Fronts = std::vector<std::vector<std::vector<Label>>>;

class Builder {
 public:
  explicit Builder(const PipelineInput& input) : input_(input) {}

  void Compute(const Composition& composition, int depth) {
    const int segments = input_.table->segments;
    Fronts fronts(composition.size());
    for (size_t c = 0; c < composition.size(); ++c) {
      if (composition[c] == 0) {
        continue;
      }
      fronts[c].resize(static_cast<size_t>(segments));
      Composition rest = composition;
      --rest[c];
      const Fronts* shorter = depth > 1 ? &table_.at(rest) : nullptr;
      for (int first = segments - depth; first >= 0; --first) {
        FillState(static_cast<int>(c), first, depth, shorter,
                  fronts[c][static_cast<size_t>(first)]);
      }
    }
    table_.emplace(composition, std::move(fronts));
  }

  /// The front of whole pipelines, over all first classes.
  std::vector<Label> Whole(const Composition& composition) const {
    std::vector<Label> front;
    for (const auto& by_segment : table_.at(composition)) {
      if (!by_segment.empty()) {
        for (const Label& label : by_segment.front()) {
          Insert(front, label);
        }
      }
    }
    std::sort(front.begin(), front.end(),
              [](const Label& a, const Label& b) { return a.pace.period < b.pace.period; });
    return front;
  }

 private:
  void FillState(
      int worker_class, int first, int depth, const Fronts* shorter, std::vector<Label>& front) {
    const int segments = input_.table->segments;
    ClassStage stage{.worker_class = worker_class, .first_segment = first};
    if (shorter == nullptr) {
      stage.last_segment = segments;
      if (Admit(input_, 1, stage)) {
        Insert(front, Extend(input_, stage, nullptr));
      }
      return;
    }
    for (int last = first + 1; last <= segments - (depth - 1); ++last) {
      stage.last_segment = last;
      if (!Admit(input_, depth, stage)) {
        break;  // A longer stage needs no less memory.
      }
      for (const auto& by_segment : *shorter) {
        if (!by_segment.empty()) {
          ExtendAll(input_, stage, by_segment[static_cast<size_t>(last)], front);
        }
      }
    }
  }

  const PipelineInput& input_;
  std::map<Composition, Fronts> table_;  // Nodes of a map stay in place: labels point into them.
};

}  // namespace

PipelineTable PipelineTable::Build(const PipelineInput& input) {
  PipelineTable table;
  Builder builder(input);
  PipelineInput bounded = input;
  bounded.max_depth = std::min(input.max_depth, input.table->segments);
  const auto levels = ListCompositions(bounded);
  for (size_t depth = 1; depth <= levels.size(); ++depth) {
    for (const Composition& composition : levels[depth - 1]) {
      builder.Compute(composition, static_cast<int>(depth));
      const std::vector<Label> front = builder.Whole(composition);
      if (front.empty()) {
        continue;
      }
      table.compositions_.push_back(composition);
      table.paces_.emplace_back();
      table.stages_.emplace_back();
      for (const Label& label : front) {
        table.paces_.back().push_back(label.pace);
        table.stages_.back().push_back(StagesOf(&label));
      }
    }
  }
  return table;
}

std::vector<ClassStage> BestCuts(const PipelineInput& input, const std::vector<int>& order) {
  const int segments = input.table->segments;
  const int count = static_cast<int>(order.size());
  if (count == 0 || count > segments) {
    return {};
  }
  std::vector<std::vector<std::vector<Label>>> fronts(
      order.size(), std::vector<std::vector<Label>>(static_cast<size_t>(segments) + 1));
  for (int position = count - 1; position >= 0; --position) {
    const int depth = count - position;
    auto& here = fronts[static_cast<size_t>(position)];
    for (int first = segments - depth; first >= position; --first) {
      ClassStage stage{.worker_class = order[static_cast<size_t>(position)],
                       .first_segment = first,
                       .last_segment = segments};
      std::vector<Label>& front = here[static_cast<size_t>(first)];
      if (depth == 1) {
        if (Admit(input, 1, stage)) {
          Insert(front, Extend(input, stage, nullptr));
        }
        continue;
      }
      const auto& later = fronts[static_cast<size_t>(position) + 1];
      for (int last = first + 1; last <= segments - (depth - 1); ++last) {
        stage.last_segment = last;
        if (!Admit(input, depth, stage)) {
          break;
        }
        ExtendAll(input, stage, later[static_cast<size_t>(last)], front);
      }
    }
  }
  const Label* best = nullptr;
  for (const Label& label : fronts.front().front()) {
    if (best == nullptr ||
        label.pace.Seconds(input.microbatches) < best->pace.Seconds(input.microbatches)) {
      best = &label;
    }
  }
  return StagesOf(best);
}

}  // namespace heddle::planner
