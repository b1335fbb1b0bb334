/// \file
/// The coordinator as a pure state machine: (state, event, now) → (state, actions). No clock,
/// socket, file, thread or randomness inside; the same inputs give the same actions, so that any
/// history replays. elastic/grpc/server.h is its shell. How a change of membership goes, in order:
///
///     loss    fence (generation + 1, durable) → Halt → Halted → settle the step → plan → Prepare →
///     Prepared
///             → Start → Ready → Go
///     planned plan → Prepare → Prepared, all while training goes on → Stop → Stopped → Start →
///     Ready → Go
///
/// A loss during either starts again from the fence with those that are left. Before workers that
/// have come are planned with, their links are measured (elastic/control/links/link_survey.h).
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

/// Thread: one caller at a time. A copy is an independent machine.
class Coordinator {
 public:
  /// Waits for Submitted. Generations are numbered above `generation_counter`.
  explicit Coordinator(int64_t generation_counter = 0);
  /// Goes on with `job` from what its predecessor stored: adopts the workers that say Hello. The
  /// checkpoints are job.checkpoints, not those that were stored: one of these may have been
  /// damaged meanwhile.
  Coordinator(const DurableState& restored, const Job& job, Time now);
  Coordinator(const Coordinator& other);
  Coordinator& operator=(const Coordinator& other);
  Coordinator(Coordinator&& other) noexcept;
  Coordinator& operator=(Coordinator&& other) noexcept;
  ~Coordinator();

  std::vector<CoordinatorAction> Handle(const CoordinatorEvent& event, Time now);

  /// When Ticked must come at the latest; none: only events change anything.
  std::optional<Time> NextDeadline() const;

  /// For people and scripts.
  wire::JobStatus StatusAt(Time now) const;

  /// What must hold between any two events; an error says what does not. For tests.
  Status CheckInvariants() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::elastic
