#include "elastic/worker/trainer/lowered_plans.h"

#include <algorithm>

#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/stage_graph.h"

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

// The graph that a worker's programs run, which is `graph`, kept by others, where nothing is cut.
Result<std::shared_ptr<const graph::Graph>> GraphOf(const graph::Graph& graph,
                                                    const Lowered& lowered) {
  if (lowered.plan.layouts.empty()) {
    return std::shared_ptr<const graph::Graph>(std::shared_ptr<void>(), &graph);
  }
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph member,
                          program::MemberGraph(graph, lowered.plan, lowered.rank));
  return std::make_shared<const graph::Graph>(std::move(member));
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
    HEDDLE_ASSIGN_OR_RETURN(lowered->training,
                            program::Lower(context_.graph, lowered->plan, lowered->rank));
    context_.progress.Note();
    HEDDLE_ASSIGN_OR_RETURN(lowered->evaluation, program::Lower(context_.evaluation_graph,
                                                                lowered->plan, lowered->rank));
    context_.progress.Note();
    HEDDLE_ASSIGN_OR_RETURN(lowered->training_graph, GraphOf(context_.graph, *lowered));
    HEDDLE_ASSIGN_OR_RETURN(lowered->evaluation_graph,
                            GraphOf(context_.evaluation_graph, *lowered));
    lowered->state_bytes = program::StateBytes(context_.graph, lowered->training);
    hash = program::ProgramHash(lowered->training, *lowered->training_graph);
  }
  const MutexLock lock(mutex_);
  if (!profile_.seconds.empty() && lowered->rank >= 0) {
    lowered->predicted_busy_seconds =
        PredictedBusy(*lowered->training_graph, lowered->training, profile_);
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
