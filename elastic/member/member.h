/// \file
/// The worker's side of the control protocol as a pure state machine: (state, event, now) → (state,
/// actions), like elastic/control/coordinator/coordinator.h. Its shell is
/// elastic/member/member_loop.h with the host that elastic/worker implements: a control thread that
/// never blocks, and one trainer thread that carries out ApplyJob, MeasureProfile, LowerPlan,
/// Settle, Adopt, Move and Run in the order in which they were asked.
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

/// The stream to the coordinator is up: Hello goes out.
struct StreamUp {};
struct StreamDown {
  std::string reason;
};
struct FromCoordinator {
  wire::ToWorker message;
};
/// ApplyJob ended. An error means the job does not fit this machine: the worker leaves and exits
/// with 2 (kInvalidArgument) or 1.
struct JobApplied {
  Status status;
};
struct ProfileMeasured {
  Status status;
  std::string profile_json;
  uint64_t data = 0;  ///< Fingerprint of what the job's data are here.
};
struct PlanLowered {
  int64_t generation = 0;
  Status status;
  uint64_t program_hash = 0;
};
/// Move ended. After an error the state held before is unchanged.
struct StateMoved {
  int64_t generation = 0;
  Status status;
  std::string peer;                      ///< With an error: the worker it is blamed on, if any.
  std::map<std::string, int64_t> bytes;  ///< Received, by kind of source: "memory", "replica",
                                         ///< "checkpoint".
  double seconds = 0;
  /// With kDataLoss: what came from other workers' memory and is not what they sent, one a holder.
  std::vector<wire::Ready::Refused> refused = {};
  wire::Certificate certificate = {};  ///< Of what was moved here.
};
/// Of the state after a step, which the next one has not changed yet.
struct StateDigested {
  int64_t generation = 0;
  wire::Certificate certificate;
};
/// ProbeLinks ended.
struct LinksProbed {
  wire::LinksMeasured answer;
};
/// A step was applied (or, not finite, refused by the vote) and Run goes on.
struct StepApplied {
  wire::StepRecord record;
  double busy_seconds = 0;            ///< Compute of this worker, waits excluded.
  double predicted_busy_seconds = 0;  ///< By its profile; 0: unknown.
};
/// Run ended: asked to stop, at the last step, or by an error. Comes after the StepApplied of its
/// steps and, when it finished, after the Saved and Validated of what was due at the last step.
struct RunEnded {
  enum class How : uint8_t { kStopped, kFinished, kFailed };
  int64_t generation = 0;
  How how = How::kFailed;
  int64_t applied_step = 0;
  /// kFailed: kUnavailable, kAborted and kDeadlineExceeded are the data plane's (state and
  /// gradients are kept for Settle); anything else is this worker's own end.
  Status status;
  std::string peer;    ///< kFailed: the worker it is blamed on, if any.
  bool voted = false;  ///< This worker's gradients of step applied_step + 1 are complete.
  /// The record of step applied_step + 1, when its vote's result is known here but not applied.
  std::optional<wire::StepRecord> voted_record;
};
/// Communicator::OnPeerLost fired; Run or Move fails soon.
struct PeerSeenLost {
  int64_t generation = 0;
  std::string peer;
  std::string reason;
};
struct Saved {
  wire::CheckpointPart part;
};
/// Other parts of snapshots than before are held in memory.
struct SnapshotsHeld {
  std::vector<wire::Halted::Replicas> replicas;  ///< All.
};
struct Validated {
  int64_t generation = 0;
  int64_t step = 0;
  double loss = 0;
};
/// SIGTERM: leave after the step, its state handed over.
struct TerminateRequested {
  std::string reason;
};
struct MemberTicked {
  int64_t progress = 0;       ///< What the trainer has done, counted.
  bool waits = false;         ///< It waits for other workers.
  int64_t moved_bytes = 0;    ///< Of the state that it is to get for the next generation.
  int64_t bytes_to_move = 0;  ///< All of it; zero: none is on its way.
  /// Whom its connections wait for, by rank, in the group of a generation.
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

// ---- Actions, carried out in order ----

struct SendToCoordinator {
  wire::FromWorker message;
};
/// First Welcome only: read the job, build the graph, open the data. Answered by JobApplied.
struct ApplyJob {
  wire::Welcome welcome;
};
/// Answered by ProfileMeasured.
struct MeasureProfile {};
/// Measure beside training, bounded by request.seconds. Answered by LinksProbed.
struct ProbeLinks {
  wire::MeasureLinks request;
};
/// Lower beside training, on any thread. Answered by PlanLowered.
struct LowerPlan {
  int64_t generation = 0;
  std::string plan_json;
};
/// Endpoint::Fence(generation) now, from the control thread; a Run or Move under way ends with
/// kAborted and is answered as usual.
struct AbortBelow {
  int64_t generation = 0;
  std::string reason;
};
/// Apply `step` with this norm to the state held: its gradients are complete. `skip`: the vote
/// refused the step, which counts without its update. On failure the next Move fails.
struct SettleStep {
  int64_t step = 0;
  double norm = 0;
  bool skip = false;
};
/// The state moved for `generation` becomes the one held; the one before is dropped, and so are
/// snapshots of later steps. A worker outside that plan holds no state afterwards.
struct AdoptState {
  int64_t generation = 0;
};
/// The state moved for `generation` is dropped; the one held before stays.
struct DiscardState {
  int64_t generation = 0;
};
/// Connect, then move: build the state of `start.applied_step` under the prepared plan aside, the
/// one held unchanged. Answered by StateMoved.
struct MoveState {
  wire::Start start;
  wire::Prepare prepared;      ///< The plan and its members.
  std::string held_plan_json;  ///< Of the state held here; empty: none.
};
/// Train from applied_step + 1 to a stop or the last step. Answered by StepApplied … RunEnded.
struct RunSteps {
  int64_t generation = 0;
  int64_t applied_step = 0;
  bool save = false;      ///< Start's.
  bool validate = false;  ///< Start's.
};
/// Save the state after `step`, which is at rest, unless that step's save has begun already. Posts
/// Saved.
struct SaveState {
  int64_t generation = 0;
  int64_t step = 0;
};
/// Set `stop` in the next vote of the run of `generation`.
struct RequestStop {
  int64_t generation = 0;
};
struct SetEmulation {
  wire::Emulation emulation;
};
/// The coordinator does not take this worker now; it asks again. Said when the reason changes.
struct NoteRefusal {
  std::string reason;
};
/// What it was told to end for is withdrawn: signals are counted anew.
struct ForgetSignals {};
/// The process ends: 0 released, 1 given up, 2 refused, kExitRequeue suspended, or told to end and
/// nobody is there to let it go.
struct ExitWorker {
  int code = 0;
  std::string reason;
  /// Instead of ending it begins anew, as another incarnation that holds nothing: the job has given
  /// up this one and would take that one.
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

/// What a worker says of itself.
struct MemberIdentity {
  std::string name;         ///< Requested; empty: the coordinator chooses.
  std::string incarnation;  ///< 16 random bytes.
  std::string host;
  int64_t pid = 0;
  std::string data_address;
  std::string metrics_address;
  std::string network = {};  ///< Address that it listens at, without ports.
  std::string probe_address =
      {};  ///< Of the endpoint that links are measured through; empty: none.
  std::string failure_domain = {};  ///< Whose members are lost together; empty: unknown.
  wire::Emulation emulation = {};   ///< From the command line.
};

struct MemberOptions {
  /// Before the job is known: without a word from the coordinator for so long the worker gives up
  /// (exit 1); a refusal that need not last is no word. Afterwards the job's coordinator_wait
  /// counts, and only while nothing runs here.
  Duration welcome_timeout = kWelcomeTimeout;
  /// Records kept for a coordinator that is away; the oldest go first.
  size_t max_records = 1 << 16;
  /// Least steps and least time of a drift window.
  int64_t window_steps = 5;
  Duration window_time = std::chrono::milliseconds(500);
  /// Least time of a quick drift window, which may have one step: above the time between
  /// heartbeats, so that each window is reported.
  Duration quick_window_time = std::chrono::milliseconds(250);
};

/// Thread: one caller at a time. A copy is an independent machine.
class Member {
 public:
  Member(MemberIdentity identity, MemberOptions options, Time now);
  Member(const Member& other);
  Member& operator=(const Member& other);
  Member(Member&& other) noexcept;
  Member& operator=(Member&& other) noexcept;
  ~Member();

  std::vector<MemberAction> Handle(const MemberEvent& event, Time now);
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
