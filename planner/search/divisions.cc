#include "planner/search/divisions.h"

#include <algorithm>
#include <limits>
#include <map>

namespace heddle::planner {
namespace {

class Enumeration {
 public:
  Enumeration(const Problem& problem,
              const WorkerClasses& classes,
              const PipelineTable& table,
              size_t keep)
      : problem_(problem),
        table_(table),
        keep_(keep) {
    for (const auto& members : classes.members) {
      left_.push_back(static_cast<int>(members.size()));
    }
    int64_t parameters = 0;
    for (size_t p = 0; p < problem.table.parameter_bytes.size(); ++p) {
      parameters += ReducedBytes(problem, static_cast<graph::ParameterId>(p));
    }
    // Estimates reductions: every worker moves its part of the gradients twice over its slowest
    // link.
    for (const Composition& composition : table.compositions()) {
      int depth = 0;
      double slowest = std::numeric_limits<double>::infinity();
      for (size_t c = 0; c < composition.size(); ++c) {
        depth += composition[c];
        if (composition[c] > 0) {
          slowest = std::min(slowest, Bandwidth(classes.members[c].front()));
        }
      }
      reduction_.push_back(2 * static_cast<double>(parameters) / depth / slowest);
    }
  }

  std::optional<std::vector<Division>> Run() {
    Visit(table_.compositions().size());
    if (EndsEarly()) {
      return std::nullopt;
    }
    std::vector<Division> all;
    for (auto& entry : best_) {
      for (Division& division : entry.second) {
        all.push_back(std::move(division));
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Division& a, const Division& b) { return a.seconds < b.seconds; });
    return all;
  }

 private:
  double Bandwidth(int rank) const {
    double slowest = std::numeric_limits<double>::infinity();
    for (int other = 0; other < problem_.workers(); ++other) {
      if (other != rank) {
        slowest = std::min(slowest, problem_.cluster.links.At(rank, other).bytes_per_second);
      }
    }
    return slowest;
  }

  bool Take(size_t index) {
    const Composition& composition = table_.compositions()[index];
    for (size_t c = 0; c < composition.size(); ++c) {
      if (composition[c] > left_[c]) {
        return false;
      }
    }
    for (size_t c = 0; c < composition.size(); ++c) {
      left_[c] -= composition[c];
    }
    chosen_.push_back(index);
    return true;
  }

  void GiveBack() {
    const Composition& composition = table_.compositions()[chosen_.back()];
    for (size_t c = 0; c < composition.size(); ++c) {
      left_[c] += composition[c];
    }
    chosen_.pop_back();
  }

  bool EndsEarly() const {
    return visited_ > problem_.limits.max_divisions || problem_.stop.stop_requested();
  }

  /// Adds compositions of descending index, with repetition, so that each multiset is visited once.
  void Visit(size_t limit) {
    if (!chosen_.empty()) {
      ++visited_;
      if (EndsEarly()) {
        return;
      }
      Score();
    }
    if (static_cast<int>(chosen_.size()) == problem_.microbatches) {
      return;
    }
    for (size_t index = limit; index-- > 0 && !EndsEarly();) {
      if (Take(index)) {
        Visit(index + 1);
        GiveBack();
      }
    }
  }

  void Score() {
    spans_.clear();
    double reduction = 0;
    for (const size_t index : chosen_) {
      spans_.emplace_back(table_.Paces(index));
      reduction = std::max(reduction, reduction_[index]);
    }
    const double count = static_cast<double>(chosen_.size());
    const double seconds =
        BalanceShares(spans_, problem_.microbatches).seconds + reduction * (count - 1) / count;
    std::vector<Division>& kept = best_[chosen_.size()];
    if (kept.size() == keep_ && seconds >= kept.back().seconds) {
      return;
    }
    // Equal times keep the order of visiting.
    const auto place =
        std::upper_bound(kept.begin(), kept.end(), seconds,
                         [](double value, const Division& other) { return value < other.seconds; });
    kept.insert(place, {.pipelines = chosen_, .seconds = seconds});
    if (kept.size() > keep_) {
      kept.pop_back();
    }
  }

  const Problem& problem_;
  const PipelineTable& table_;
  const size_t keep_;
  std::vector<int> left_;
  std::vector<double> reduction_;  ///< By composition.
  std::vector<size_t> chosen_;
  std::vector<std::span<const Pace>> spans_;
  std::map<size_t, std::vector<Division>> best_;  ///< By number of pipelines, fastest first.
  int visited_ = 0;
};

}  // namespace

std::optional<std::vector<Division>> BestDivisions(const Problem& problem,
                                                   const WorkerClasses& classes,
                                                   const PipelineTable& table,
                                                   size_t keep) {
  return Enumeration(problem, classes, table, keep).Run();
}

Draft DraftOf(const WorkerClasses& classes, const PipelineTable& table, const Division& division) {
  std::vector<size_t> next(classes.members.size(), 0);
  Draft draft;
  for (const size_t index : division.pipelines) {
    const std::vector<size_t> start = next;
    std::vector<Draft::Alternative> alternatives;
    for (size_t pace = 0; pace < table.Paces(index).size(); ++pace) {
      next = start;
      Draft::Alternative alternative{.pace = table.Paces(index)[pace], .stages = {}};
      for (const ClassStage& stage : table.Stages(index, pace)) {
        const size_t c = static_cast<size_t>(stage.worker_class);
        alternative.stages.push_back({.group = {classes.members[c][next[c]++]},
                                      .first_segment = stage.first_segment,
                                      .last_segment = stage.last_segment,
                                      .recompute = stage.recompute});
      }
      alternatives.push_back(std::move(alternative));
    }
    draft.pipelines.push_back(std::move(alternatives));
  }
  return draft;
}

}  // namespace heddle::planner
