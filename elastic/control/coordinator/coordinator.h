/// \file
/// The coordinator as a pure state machine: (state, event, now) → (state, actions). It has no
/// clock, socket, file, thread or randomness; the same inputs give the same actions, so that any
/// history can be replayed. elastic/grpc/server.h is its shell. A change of membership goes so:
///
///     loss     fence (generation + 1, durable) → Halt → Halted → settle the step → plan
///              → Prepare → Prepared → Start → Ready → Go
///     planned  plan → Prepare → Prepared (training goes on meanwhile) → Stop → Stopped
///              → Start → Ready → Go
///
/// A loss during either restarts at the fence with the remaining workers. The links of joining
/// workers are measured before a plan uses them (elastic/control/links/link_survey.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/actions.h"
#include "elastic/control/events.h"
#include "elastic/protocol/version.h"

namespace heddle::elastic {

/// The coordinator's state machine. Thread: one caller at a time. A copy is an independent machine.
class Coordinator {
 public:
  /// Constructs a coordinator without a job, which waits for Submitted. Generations are numbered
  /// above `generation_counter`.
  explicit Coordinator(int64_t generation_counter = 0);
  /// Continues `job` from the durable state of its predecessor and adopts the workers that send
  /// Hello. The sound checkpoints are job.checkpoints; those in `restored` may have been damaged
  /// meanwhile.
  Coordinator(const DurableState& restored, const Job& job, Time now);
  Coordinator(const Coordinator& other);
  Coordinator& operator=(const Coordinator& other);
  Coordinator(Coordinator&& other) noexcept;
  Coordinator& operator=(Coordinator&& other) noexcept;
  ~Coordinator();

  /// Handles one event and returns the actions to carry out, in order.
  std::vector<CoordinatorAction> Handle(const CoordinatorEvent& event, Time now);

  /// The time by which Ticked must be delivered; nullopt if only another event changes anything.
  std::optional<Time> NextDeadline() const;

  /// The job's status at `now`, for people and scripts.
  wire::JobStatus StatusAt(Time now) const;

  /// Checks what must hold between any two events. Errors: kInternal with the violated invariant.
  /// For tests.
  Status CheckInvariants() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::elastic
