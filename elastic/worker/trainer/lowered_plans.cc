#include "elastic/worker/trainer/lowered_plans.h"

#include <algorithm>

#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"

namespace heddle::elastic {
namespace {

// A worker's compute time of one step, predicted from its profile.
double PredictedBusy(const graph::Graph& graph,
                     const program::Program& program,
                     const program::WorkerProfile& profile) {
  double seconds = 0;
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.code == program::Code::kRun) {
      seconds += profile.Seconds(graph, graph.node(instruction.node));
    } else if (instruction.code == program::Code::kFold) {
      seconds += profile.ByteSeconds(
          "fold", program.slots[static_cast<size_t>(instruction.inputs[0])].type.bytes());
    } else if (instruction.code == program::Code::kUpdate) {
      seconds += profile.ByteSeconds(
          "update", program.slots[static_cast<size_t>(instruction.inputs[0])].type.bytes());
    }
  }
  return seconds;
}

}  // namespace

void LoweredPlans::SetProfile(const program::WorkerProfile& profile) {
  const MutexLock lock(mutex_);
  profile_ = profile;
}

Result<uint64_t> LoweredPlans::Lower(int64_t generation, const std::string& plan_json) {
  auto lowered = std::make_shared<Lowered>();
  HEDDLE_ASSIGN_OR_RETURN(lowered->plan, program::PlanFromJson(plan_json));
  context_.progress.Note();
  const auto found = std::ranges::find(lowered->plan.workers, context_.options.worker);
  uint64_t hash = 0;
  if (found != lowered->plan.workers.end()) {
    lowered->rank = static_cast<int>(found - lowered->plan.workers.begin());
    HEDDLE_RETURN_IF_ERROR(program::ValidateUngrouped(lowered->plan, context_.graph));
    HEDDLE_ASSIGN_OR_RETURN(lowered->training,
                            program::Lower(context_.graph, lowered->plan, lowered->rank));
    context_.progress.Note();
    HEDDLE_ASSIGN_OR_RETURN(lowered->evaluation, program::Lower(context_.evaluation_graph,
                                                                lowered->plan, lowered->rank));
    context_.progress.Note();
    lowered->state_bytes = program::StateBytes(context_.graph, lowered->training);
    hash = program::ProgramHash(lowered->training, context_.graph);
  }
  const MutexLock lock(mutex_);
  if (!profile_.seconds.empty()) {
    lowered->predicted_busy_seconds = PredictedBusy(context_.graph, lowered->training, profile_);
  }
  plans_[generation] = std::move(lowered);
  return hash;
}

Result<std::shared_ptr<const Lowered>> LoweredPlans::FindOrLower(int64_t generation,
                                                                 const std::string& plan_json) {
  std::shared_ptr<const Lowered> lowered = Find(generation);
  if (lowered == nullptr) {
    HEDDLE_RETURN_IF_ERROR(Lower(generation, plan_json).status());
    lowered = Find(generation);
  }
  return lowered;
}

std::shared_ptr<const Lowered> LoweredPlans::Find(int64_t generation) {
  const MutexLock lock(mutex_);
  const auto found = plans_.find(generation);
  return found == plans_.end() ? nullptr : found->second;
}

void LoweredPlans::ForgetBelow(int64_t generation) {
  const MutexLock lock(mutex_);
  plans_.erase(plans_.begin(), plans_.lower_bound(generation));
}

}  // namespace heddle::elastic
