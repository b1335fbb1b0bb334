#include "planner/search/exhaustive.h"

#include "planner/search/improve.h"

namespace heddle::planner {
namespace {

using program::Plan;

class Enumeration {
 public:
  Enumeration(const Problem& problem, size_t limit)
      : problem_(problem),
        limit_(limit),
        used_(static_cast<size_t>(problem.workers()), false) {
    plan_ = EmptyPlan(problem);
  }

  std::vector<Plan> Run() {
    NextPipeline(0);
    if (visited_ > limit_) {
      plans_.clear();
    }
    return std::move(plans_);
  }

 private:
  void NextPipeline(int first) {
    if (first == problem_.microbatches) {
      if (++visited_ <= limit_) {
        Offer();
      }
      return;
    }
    for (int share = 1; first + share <= problem_.microbatches && visited_ <= limit_; ++share) {
      plan_.pipelines.push_back({.stages = {}, .first_microbatch = first, .microbatches = share});
      NextStage(first + share, 0);
      plan_.pipelines.pop_back();
    }
  }

  void NextStage(int first, int segment) {
    if (segment == problem_.table.segments) {
      NextPipeline(first);
      return;
    }
    for (size_t worker = 0; worker < used_.size() && visited_ <= limit_; ++worker) {
      if (used_[worker]) {
        continue;
      }
      used_[worker] = true;
      for (int last = segment + 1; last <= problem_.table.segments; ++last) {
        plan_.pipelines.back().stages.push_back(
            {.group = {static_cast<int>(worker)}, .first_segment = segment, .last_segment = last});
        NextStage(first, last);
        plan_.pipelines.back().stages.pop_back();
      }
      used_[worker] = false;
    }
  }

  void Offer() {
    Plan plan = plan_;
    if (SettleMemory(problem_, plan)) {
      plans_.push_back(std::move(plan));
    }
  }

  const Problem& problem_;
  const size_t limit_;
  size_t visited_ = 0;
  Plan plan_;
  std::vector<bool> used_;
  std::vector<Plan> plans_;
};

}  // namespace

std::vector<Plan> EveryPlan(const Problem& problem, size_t limit) {
  // Only at small sizes are dead ends, with no worker left before the last segment, at most a small
  // factor more than plans.
  constexpr int kMaxWorkers = 4;
  constexpr int kMaxSegments = 12;
  constexpr int kMaxMicrobatches = 16;
  if (problem.workers() > kMaxWorkers || problem.table.segments > kMaxSegments ||
      problem.microbatches > kMaxMicrobatches) {
    return {};
  }
  return Enumeration(problem, limit).Run();
}

}  // namespace heddle::planner
