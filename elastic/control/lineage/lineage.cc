#include "elastic/control/lineage/lineage.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

// A step before every step: what the job began from.
constexpr int64_t kBegin = -1;

// All workers of a job have its number of threads.
Arithmetic InJob(Arithmetic arithmetic, const JobPolicy& policy) {
  arithmetic["threads"] = std::to_string(policy.threads);
  return arithmetic;
}

}  // namespace

void Lineage::BeginJob(const std::optional<Provenance>& checkpoint) {
  stretches_.clear();
  told_.reset();
  if (checkpoint) {
    stretches_.push_back({.after_step = kBegin, .provenance = *checkpoint});
  }
}

void Lineage::BeginGeneration(const std::vector<std::string>& members,
                              Source source,
                              int64_t step,
                              const Roster& roster,
                              const JobPolicy& policy) {
  if (source == Source::kInitial) {
    stretches_.clear();
  }
  std::erase_if(stretches_, [&](const auto& stretch) { return stretch.after_step >= step; });
  Provenance before = newest();
  if (source == Source::kCheckpoint && policy.checkpoints_round && step > 0) {
    before = {.guarantee = Guarantee::kNone,
              .reason = fmt::format("it went on from the checkpoint of step {}, whose moments are "
                                    "rounded (checkpoint.moments: bf16)",
                                    step)};
  }
  std::vector<Computing> computing;
  for (const std::string& name : members) {
    computing.push_back({.name = name, .arithmetic = InJob(roster.at(name).arithmetic, policy)});
  }
  Provenance after = AfterStepsOf(computing, before, policy.exact_sums);
  if (stretches_.empty() || stretches_.back().provenance != after) {
    stretches_.push_back({.after_step = step, .provenance = std::move(after)});
  }
}

void Lineage::Tell(int64_t generation, Outbox& out) {
  const Provenance& present = newest();
  if (told_ && told_->guarantee == present.guarantee && told_->reason == present.reason) {
    return;
  }
  told_ = present;
  out.Log("guarantee", {{"generation", generation},
                        {"guarantee", std::string(NameOf(present.guarantee))},
                        {"reason", present.reason}});
}

std::string Lineage::WhyRefused(const std::string& name,
                                const Arithmetic& arithmetic,
                                const Roster& roster,
                                const JobPolicy& policy) const {
  if (policy.demanded != Guarantee::kPlanInvariant) {
    return "";
  }
  const Arithmetic own = InJob(arithmetic, policy);
  std::string like = "the workers of its steps so far";
  Arithmetic wanted = newest().arithmetic;
  for (const auto& [other, worker] : roster.workers()) {
    if (wanted.empty() && (worker.welcomed || !worker.seen) && !worker.arithmetic.empty()) {
      like = other;
      wanted = InJob(worker.arithmetic, policy);
    }
  }
  if (wanted.empty() || own == wanted) {
    return "";
  }
  return fmt::format(
      "the job demands guarantee: plan-invariant, and {} computes unlike {}: {}; give it a "
      "processor, libraries and an environment like those, or submit the job with guarantee: "
      "per-plan",
      name.empty() ? "this worker" : name, like, DifferenceOf(own, wanted));
}

void Lineage::Restore(const DurableState& durable, const std::optional<Provenance>& checkpoint) {
  BeginJob(checkpoint);
  if (!durable.lineage.empty()) {
    stretches_ = durable.lineage;
  }
}

const Provenance& Lineage::Before(int64_t step) const {
  static const Provenance kNothingComputed;
  const auto later = std::ranges::find_if(
      stretches_, [&](const auto& stretch) { return stretch.after_step >= step; });
  return later == stretches_.begin() ? kNothingComputed : std::prev(later)->provenance;
}

}  // namespace heddle::elastic
