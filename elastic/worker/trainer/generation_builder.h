/// \file
/// Builds the next generation beside the held one: connects its workers, moves its state, and makes
/// its executors.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "elastic/worker/trainer/lowered_plans.h"
#include "elastic/worker/trainer/snapshots.h"

namespace heddle::elastic {

/// Builds generations on one worker. Thread: one caller at a time.
class GenerationBuilder {
 public:
  GenerationBuilder(JobContext& context, LoweredPlans& plans, Snapshots& snapshots)
      : context_(context),
        plans_(plans),
        snapshots_(snapshots) {}

  /// Sets the link of this worker's own end, as measured with the profile.
  void SetLink(const comm::Link& link) { link_ = link; }
  /// Builds the generation of `move`. `held`: the generation that this worker holds, which stays
  /// unchanged; null: none. Fills in the bytes and the refused pieces of `moved`. Errors: those of
  /// StateMove, of lowering the plan and of connecting.
  Result<std::unique_ptr<Generation>> Build(const MoveState& move,
                                            const Generation* held,
                                            StateMoved& moved);

 private:
  Status MoveInto(Generation& next,
                  const MoveState& move,
                  const Generation* held,
                  const comm::MeasuredLinks& measured,
                  StateMoved& moved);
  /// Makes the executors and the replicator, once the group is connected and the state is there.
  Status MakeRunnable(Generation& next,
                      const wire::Prepare& prepared,
                      const comm::MeasuredLinks& measured);
  Result<std::unique_ptr<comm::Communicator>> Connect(int64_t generation,
                                                      std::vector<comm::GroupMember> members,
                                                      std::vector<int> peers,
                                                      const comm::MeasuredLinks& measured);
  runtime::ExecutorOptions ExecutorFor(Generation& generation, bool training);

  JobContext& context_;
  LoweredPlans& plans_;
  Snapshots& snapshots_;
  comm::Link link_;
};

}  // namespace heddle::elastic
