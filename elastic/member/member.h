/// \file
/// The worker's side of the control protocol as a pure state machine: (state, event, now) → (state,
/// actions), like elastic/control/coordinator/coordinator.h. It is run by
/// elastic/member/member_loop.h and the host that elastic/worker implements: a control thread that
/// never blocks, and one trainer thread that performs ApplyJob, MeasureProfile, SettleStep,
/// AdoptState, MoveState and RunSteps in their order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/protocol/exit_code.h"
#include "elastic/protocol/protocol.pb.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {

// ---- Events ----

/// The stream to the coordinator is up; the worker sends its Hello.
struct StreamUp {};
/// The stream to the coordinator has ended.
struct StreamDown {
  std::string reason;
};
/// The coordinator has sent a message.
struct FromCoordinator {
  wire::ToWorker message;
};
/// ApplyJob ended. An error means the job does not fit this machine: the worker leaves and exits
/// with 2 (kInvalidArgument) or 1.
struct JobApplied {
  Status status;
  /// What it computes on if the job names its device, and not the processor; else empty.
  std::map<std::string, std::string> arithmetic = {};
};
/// MeasureProfile ended.
struct ProfileMeasured {
  Status status;
  std::string profile_json;
  uint64_t data = 0;  ///< Fingerprint of the job's data as this machine has them.
};
/// LowerPlan ended.
struct PlanLowered {
  int64_t generation = 0;
  Status status;
  uint64_t program_hash = 0;
};
/// MoveState ended. After an error the state held before is unchanged.
struct StateMoved {
  int64_t generation = 0;
  Status status;
  std::string peer;  ///< After an error: the worker that is blamed for it, if any.
  /// Received bytes by kind of source: "memory", "replica", "checkpoint".
  std::map<std::string, int64_t> bytes;
  double seconds = 0;
  double transfer_seconds = 0;  ///< Of `seconds`, while state went to or from other workers.
  /// After kDataLoss: one entry for each worker whose data did not match their hashes.
  std::vector<wire::Ready::Refused> refused = {};
  wire::Certificate certificate = {};  ///< Digests of the moved state.
};
/// The digests of the state after a step were computed, before the next step changed it.
struct StateDigested {
  int64_t generation = 0;
  wire::Certificate certificate;
};
/// ProbeLinks ended.
struct LinksProbed {
  wire::LinksMeasured answer;
};
/// A step was applied, or was refused by the vote because it is not finite; the run goes on.
struct StepApplied {
  wire::StepRecord record;
  double busy_seconds = 0;            ///< Compute time of this worker, without waits.
  double predicted_busy_seconds = 0;  ///< Compute time predicted from its profile; 0: unknown.
};
/// RunSteps ended: by a requested stop, after the last step, or by an error. Follows the
/// StepApplied of its steps and, when it finished, the Saved and Validated that were due at the
/// last step.
struct RunEnded {
  enum class How : uint8_t { kStopped, kFinished, kFailed };
  int64_t generation = 0;
  How how = How::kFailed;
  int64_t applied_step = 0;
  /// kFailed: kUnavailable, kAborted and kDeadlineExceeded are errors of the data plane, after
  /// which state and gradients are kept for SettleStep; after any other error this worker leaves.
  Status status;
  std::string peer;    ///< kFailed: the worker that is blamed for it, if any.
  bool voted = false;  ///< This worker's gradients of step applied_step + 1 are complete.
  /// The record of step applied_step + 1, if the result of its vote is known but not applied.
  std::optional<wire::StepRecord> voted_record;
};
/// Communicator::OnPeerLost was called; the run or the move fails soon.
struct PeerSeenLost {
  int64_t generation = 0;
  std::string peer;
  std::string reason;
};
/// This worker's part of a checkpoint was written, or its save was skipped.
struct Saved {
  wire::CheckpointPart part;
};
/// The shards of snapshots that are held in memory have changed.
struct SnapshotsHeld {
  std::vector<wire::Halted::Replicas> replicas;  ///< All that are held now.
};
/// A validation has ended.
struct Validated {
  int64_t generation = 0;
  int64_t step = 0;
  double loss = 0;
};
/// SIGTERM came: the worker leaves after its step, once its state is handed over.
struct TerminateRequested {
  std::string reason;
};
/// The time of NextDeadline has come. The fields describe the trainer, for a heartbeat.
struct MemberTicked {
  int64_t progress = 0;       ///< Counter that rises with everything that the trainer does.
  bool waits = false;         ///< The trainer waits for other workers.
  int64_t moved_bytes = 0;    ///< Bytes received of the state for the next generation.
  int64_t bytes_to_move = 0;  ///< Bytes of that state in all; 0: no move is under way.
  /// Names of the workers that the connections of generation waits_generation wait for, by rank.
  std::vector<std::string> waits_for = {};
  int64_t waits_generation = 0;
};

using MemberEvent = std::variant<StreamUp,
                                 StreamDown,
                                 FromCoordinator,
                                 JobApplied,
                                 ProfileMeasured,
                                 PlanLowered,
                                 StateMoved,
                                 StateDigested,
                                 LinksProbed,
                                 StepApplied,
                                 RunEnded,
                                 PeerSeenLost,
                                 Saved,
                                 SnapshotsHeld,
                                 Validated,
                                 TerminateRequested,
                                 MemberTicked>;

// ---- Actions, performed in order ----

/// Send a message on the current stream.
struct SendToCoordinator {
  wire::FromWorker message;
};
/// Read the job, build the graph and open the data; after the first Welcome. Ends with JobApplied.
struct ApplyJob {
  wire::Welcome welcome;
};
/// Measure the profile of this worker's device. Ends with ProfileMeasured.
struct MeasureProfile {};
/// Measure links beside training, for request.seconds at most. Ends with LinksProbed.
struct ProbeLinks {
  wire::MeasureLinks request;
};
/// Lower a plan beside training, on any thread. Ends with PlanLowered.
struct LowerPlan {
  int64_t generation = 0;
  std::string plan_json;
};
/// Call Endpoint::Fence(generation) at once, from the control thread. A run or a move under way
/// ends with kAborted.
struct AbortBelow {
  int64_t generation = 0;
  std::string reason;
};
/// Apply `step`, whose gradients are complete, with this norm to the held state. `skip`: the vote
/// refused the step, which counts without its update. After an error the next MoveState fails.
struct SettleStep {
  int64_t step = 0;
  double norm = 0;
  bool skip = false;
};
/// Replace the held state by the one moved for `generation`, and drop snapshots of later steps. A
/// worker outside that generation's plan holds no state afterwards.
struct AdoptState {
  int64_t generation = 0;
};
/// Drop the state moved for `generation`; the held one stays.
struct DiscardState {
  int64_t generation = 0;
};
/// Connect, then build the state after `start.applied_step` under the prepared plan, beside the
/// held one, which stays unchanged. Ends with StateMoved.
struct MoveState {
  wire::Start start;
  wire::Prepare prepared;      ///< The plan and its members.
  std::string held_plan_json;  ///< Plan of the held state; empty: it is no source of the move.
};
/// Train from applied_step + 1 to a stop or the last step. Posts StepApplied for each step and ends
/// with RunEnded.
struct RunSteps {
  int64_t generation = 0;
  int64_t applied_step = 0;
  bool save = false;      ///< As Start.save.
  bool validate = false;  ///< As Start.validate.
};
/// Save the state after `step` of a run that has stopped, unless that save has begun already. Posts
/// Saved.
struct SaveState {
  int64_t generation = 0;
  int64_t step = 0;
};
/// Set `stop` in the next vote of the run of `generation`.
struct RequestStop {
  int64_t generation = 0;
};
/// Emulate this hardware from now on.
struct SetEmulation {
  wire::Emulation emulation;
};
/// Log that the coordinator does not take this worker now, which tries again; once for each reason.
struct NoteRefusal {
  std::string reason;
};
/// Forget the signals received so far: the order to end was taken back.
struct ForgetSignals {};
/// End the process. Codes: 0 released; 1 given up; 2 refused; kExitRequeue suspended, or told to
/// end while no coordinator releases it.
struct ExitWorker {
  int code = 0;
  std::string reason;
  /// Begin anew, as another incarnation that holds no state, instead of ending: the job has given
  /// up this incarnation and would take a new one.
  bool begins_anew = false;
};

using MemberAction = std::variant<SendToCoordinator,
                                  ApplyJob,
                                  MeasureProfile,
                                  ProbeLinks,
                                  LowerPlan,
                                  AbortBelow,
                                  SettleStep,
                                  AdoptState,
                                  DiscardState,
                                  MoveState,
                                  RunSteps,
                                  SaveState,
                                  RequestStop,
                                  SetEmulation,
                                  NoteRefusal,
                                  ForgetSignals,
                                  ExitWorker>;

/// What a worker tells the coordinator about itself in its Hello.
struct MemberIdentity {
  std::string name;         ///< The requested name; empty: the coordinator chooses one.
  std::string incarnation;  ///< 16 random bytes.
  std::string host;
  int64_t pid = 0;
  std::string data_address;
  std::string metrics_address;
  std::string network = {};         ///< The address that it listens at, without ports.
  std::string probe_address = {};   ///< Endpoint for measuring links; empty: none.
  std::string failure_domain = {};  ///< Workers of one domain are lost together; empty: unknown.
  wire::Emulation emulation = {};   ///< Set on the command line; empty: the job's is used.
  /// What decides the bits that it computes: values by name of the part.
  std::map<std::string, std::string> arithmetic = {};
  bool device_of_job = false;  ///< As Hello.device_of_job.
};

struct MemberOptions {
  /// The time without a message from the coordinator, refusals aside, after which a worker that
  /// does not know its job gives up (exit code 1). Once it knows the job, the job's
  /// coordinator_wait applies instead, and only while no steps run here.
  Duration welcome_timeout = kWelcomeTimeout;
  /// Most step records kept for a coordinator that is away; the oldest are dropped first.
  size_t max_records = 1 << 16;
  /// Least steps and least time of a complete drift window.
  int64_t window_steps = 5;
  Duration window_time = std::chrono::milliseconds(500);
  /// Least time of a quick drift window, which may have one step: above the time between
  /// heartbeats, so that each window is reported.
  Duration quick_window_time = std::chrono::milliseconds(250);
};

/// The state machine of a worker. Thread: one caller at a time. A copy is an independent machine.
class Member {
 public:
  Member(MemberIdentity identity, MemberOptions options, Time now);
  Member(const Member& other);
  Member& operator=(const Member& other);
  Member(Member&& other) noexcept;
  Member& operator=(Member&& other) noexcept;
  ~Member();

  /// Handles an event and returns the actions to perform; none after an ExitWorker.
  std::vector<MemberAction> Handle(const MemberEvent& event, Time now);
  /// When a MemberTicked is due at the latest; nullopt: nothing is due.
  std::optional<Time> NextDeadline() const;

  const std::string& name() const;  ///< Empty until welcomed, unless requested.
  wire::Standing standing() const;
  int64_t held_generation() const;
  int64_t applied_step() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace heddle::elastic
