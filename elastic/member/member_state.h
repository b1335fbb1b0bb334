/// \file
/// What a Member remembers, and its transitions: one function an event. Included by the member's
/// sources only.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/member/member.h"

namespace heddle::elastic {

struct Member::State {
  // Constant.
  MemberIdentity identity;
  MemberOptions options;

  // The stream and the job.
  bool connected = false;
  bool welcomed = false;  ///< On this stream.
  bool exited = false;
  Time last_word;  ///< Of the coordinator, refusals left out.
  std::string
      refusal;  ///< Its newest reason not to take this worker now; empty: none since a word.
  Time next_heartbeat;
  Duration heartbeat = std::chrono::milliseconds(200);
  std::optional<wire::Welcome> job;
  bool job_applied = false;
  bool profile_wanted = false;
  bool profiling = false;
  int64_t links_request = 0;  ///< The newest; older ones are moot.
  std::string leaving;        ///< Why, once asked to.

  // The state held here.
  int64_t held_generation = 0;
  int64_t applied_step = 0;
  double norm = 0;     ///< Of applied_step.
  bool voted = false;  ///< Gradients of applied_step + 1 are complete.
  std::optional<wire::StepRecord> voted_record;
  std::deque<wire::StepRecord> records;  ///< Ascending, after the coordinator's durable step.
  std::vector<wire::Halted::Replicas> replicas;  ///< Parts of snapshots in memory.

  // The change under way.
  int64_t fence = 0;         ///< Generations below it are over.
  bool halt_wanted = false;  ///< Halted is owed once Run or Move has ended.
  int64_t halt_known_step = 0;
  std::optional<wire::Prepare> prepare;
  std::optional<wire::Start> start;
  int64_t staged_generation = 0;
  wire::Standing standing = wire::STANDING_IDLE;
  int64_t standing_generation = 0;
  bool running = false;
  int rank = -1;  ///< In the generation that runs.

  // What the coordinator may not have heard; said again after a reconnect.
  std::optional<wire::Profiled> profiled;
  std::optional<wire::LinksMeasured> links_measured;
  std::optional<wire::Prepared> prepared;
  std::optional<wire::PeerLost> peer_lost;
  std::optional<wire::Stopped> stopped;
  std::optional<wire::Halted> halted;
  std::optional<wire::Ready> ready;
  std::optional<wire::Finished> finished;
  std::deque<wire::CheckpointPart> parts;
  std::deque<wire::Validation> validations;

  // Drift.
  int64_t window = 0;
  double window_busy = 0;
  double window_predicted = 0;
  int64_t open_steps = 0;
  double open_seconds = 0;
  double open_busy = 0;
  double open_predicted = 0;

  std::vector<MemberAction> actions;  ///< Of the event being handled.

  void On(const StreamUp& event, Time now);
  void On(const StreamDown& event, Time now);
  void On(const FromCoordinator& event, Time now);
  void On(const JobApplied& event, Time now);
  void On(const ProfileMeasured& event, Time now);
  void On(const PlanLowered& event, Time now);
  void On(const StateMoved& event, Time now);
  void On(const LinksProbed& event, Time now);
  void On(const StepApplied& event, Time now);
  void On(const RunEnded& event, Time now);
  void On(const PeerSeenLost& event, Time now);
  void On(const Saved& event, Time now);
  void On(const SnapshotsHeld& event, Time now);
  void On(const Validated& event, Time now);
  void On(const TerminateRequested& event, Time now);
  void On(const MemberTicked& event, Time now);

  void OnWelcome(const wire::Welcome& welcome);
  void OnRefused(const wire::Refused& refused);
  void OnProfile();
  void OnMeasureLinks(const wire::MeasureLinks& message);
  void OnPrepare(const wire::Prepare& message);
  void OnStop(const wire::Stop& message);
  void OnHalt(const wire::Halt& message);
  void OnStart(const wire::Start& message);
  void OnGo(const wire::Go& message);

  template <typename T>
  void Say(const T& message);  ///< Dropped when no stream is up and welcomed.
  void SayRecordsAfter(int64_t step);
  void SayAgain(int64_t known_step);
  void AnswerHalt();
  void Adopt();
  void Exit(int code, std::string reason);
  void LeaveAtOnce(const std::string& reason, int code);
  void ForgetRecordsThrough(int64_t step);
  void ForgetRecordsAfter(int64_t step);
  void AddRecord(const wire::StepRecord& record);
  void CountWindow(const StepApplied& event);
  Duration Patience() const;
  bool Trains() const { return standing == wire::STANDING_TRAINING; }
};

// One overload a message, so that Say can wrap any of them.
void WrapMessage(const wire::Profiled& m, wire::FromWorker* out);
void WrapMessage(const wire::LinksMeasured& m, wire::FromWorker* out);
void WrapMessage(const wire::Prepared& m, wire::FromWorker* out);
void WrapMessage(const wire::StepDone& m, wire::FromWorker* out);
void WrapMessage(const wire::PeerLost& m, wire::FromWorker* out);
void WrapMessage(const wire::Halted& m, wire::FromWorker* out);
void WrapMessage(const wire::Stopped& m, wire::FromWorker* out);
void WrapMessage(const wire::Ready& m, wire::FromWorker* out);
void WrapMessage(const wire::CheckpointPart& m, wire::FromWorker* out);
void WrapMessage(const wire::Validation& m, wire::FromWorker* out);
void WrapMessage(const wire::Leaving& m, wire::FromWorker* out);
void WrapMessage(const wire::Finished& m, wire::FromWorker* out);

/// Errors after which the state held is intact and the coordinator decides how to go on.
bool IsDataPlaneError(const Status& status);

template <typename T>
void Member::State::Say(const T& message) {
  if (!connected || !welcomed) {
    return;
  }
  SendToCoordinator action;
  WrapMessage(message, &action.message);
  actions.emplace_back(std::move(action));
}

}  // namespace heddle::elastic
