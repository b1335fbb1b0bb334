#include "elastic/member/member.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "elastic/member/activity.h"
#include "elastic/member/coordinator_stream.h"
#include "elastic/member/drift_window.h"
#include "elastic/member/held_state.h"
#include "elastic/member/hello.h"
#include "elastic/member/measurements.h"
#include "elastic/member/member_outbox.h"
#include "elastic/member/preparation.h"
#include "elastic/member/reports.h"
#include "elastic/protocol/awaited.h"

namespace heddle::elastic {
namespace {

bool IsEmpty(const wire::Emulation& emulation) {
  return emulation.speed() == 0 && emulation.memory_bytes() == 0 &&
         emulation.link_bytes_per_second() == 0;
}

void Describe(const DriftWindow::Sums& window,
              const DriftWindow::Sums& quick,
              wire::Heartbeat& message) {
  message.set_window(window.number);
  message.set_busy_seconds(window.busy);
  message.set_predicted_busy_seconds(window.predicted);
  message.set_window_steps(window.steps);
  message.set_window_seconds(window.seconds);
  message.set_quick_window(quick.number);
  message.set_quick_busy_seconds(quick.busy);
  message.set_quick_predicted_busy_seconds(quick.predicted);
}

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace

// Routes each event through the components in order. The components keep their own fields; here are
// only those of the worker as a whole.
struct Member::State {
  State(MemberIdentity own, const MemberOptions& options, Time now);

  void Handle(const MemberEvent& event, Time now, MemberOutbox& out);
  void OnStreamUp(Time now, MemberOutbox& out);
  void SayHello(MemberOutbox& out) const;
  void OnMessage(const wire::ToWorker& message, Time now, MemberOutbox& out);
  void OnRefused(const wire::Refused& refused, Time now, MemberOutbox& out);
  void OnWelcome(const wire::Welcome& welcome, MemberOutbox& out);
  void OnEmulate(const wire::Emulation& emulation, MemberOutbox& out);
  void OnStart(const wire::Start& message, MemberOutbox& out);
  void OnGo(const wire::Go& message, MemberOutbox& out);
  void OnJobApplied(const JobApplied& event, MemberOutbox& out);
  void OnStep(const StepApplied& event, MemberOutbox& out);
  void OnTerminate(const std::string& reason, Time now, MemberOutbox& out);
  void OnStay(const wire::Stay& message, MemberOutbox& out);
  void OnTick(const MemberTicked& event, Time now, MemberOutbox& out);
  /// Resends what the coordinator may not have received.
  void Resend(int64_t known_step, MemberOutbox& out) const;
  void SayLeaving(MemberOutbox& out) const;

  MemberIdentity identity;
  std::optional<std::string> job_id;  ///< Nullopt before the first Welcome.
  std::string secret;                 ///< The job's secret; another one for each submission.
  std::string leaving;                ///< Why this worker was told to end; empty: it was not.
  int64_t notices = 0;                ///< How often it was told to end.
  bool rejoins = false;               ///< Begins anew instead of giving up its wait.
  bool exited = false;

  CoordinatorStream stream;
  Measurements measurements;
  Preparation preparation;
  HeldState held;
  Reports reports;
  DriftWindow window;
  DriftWindow quick_window;
  Activity activity;
};

Member::State::State(MemberIdentity own, const MemberOptions& options, Time now)
    : identity(std::move(own)),
      stream(options.welcome_timeout, now),
      reports(options.max_records),
      window(options.window_steps, options.window_time),
      quick_window(1, options.quick_window_time) {}

void Member::State::Handle(const MemberEvent& event, Time now, MemberOutbox& out) {
  const Overloaded handlers = {
      [&](const StreamUp&) { OnStreamUp(now, out); },
      [&](const StreamDown&) { stream.Disconnect(); },
      [&](const FromCoordinator& e) { OnMessage(e.message, now, out); },
      [&](const JobApplied& e) { OnJobApplied(e, out); },
      [&](const ProfileMeasured& e) { measurements.TakeProfile(e, out); },
      [&](const LinksProbed& e) { measurements.TakeLinks(e.answer, out); },
      [&](const PlanLowered& e) { preparation.TakeLowered(e, out); },
      [&](const StateMoved& e) { activity.EndMove(e, held, reports, out); },
      [&](const StateDigested& e) {
        wire::StateDigests message;  // Never resent: a lost one only skips a comparison.
        message.set_generation(e.generation);
        *message.mutable_certificate() = e.certificate;
        out.Send(message);
      },
      [&](const StepApplied& e) { OnStep(e, out); },
      [&](const RunEnded& e) { activity.EndRun(e, held, reports, out); },
      [&](const PeerSeenLost& e) { activity.AccusePeer(e, out); },
      [&](const Saved& e) { reports.AddSave(e.part, out); },
      [&](const SnapshotsHeld& e) { held.SetReplicas(e.replicas); },
      [&](const Validated& e) { reports.AddValidation(e, out); },
      [&](const TerminateRequested& e) { OnTerminate(e.reason, now, out); },
      [&](const MemberTicked& e) { OnTick(e, now, out); },
  };
  std::visit(handlers, event);
}

// ---- The stream ----

void Member::State::OnStreamUp(Time now, MemberOutbox& out) {
  stream.Connect(now);
  SayHello(out);
}

void Member::State::SayHello(MemberOutbox& out) const {
  SendToCoordinator action;
  wire::Hello& hello = *action.message.mutable_hello();
  hello = HelloOf(identity);
  hello.set_job_id(job_id.value_or(""));
  held.Describe(hello);
  hello.set_standing(activity.standing());
  hello.set_standing_generation(activity.generation());
  out.Add(std::move(action));
}

void Member::State::OnMessage(const wire::ToWorker& message, Time now, MemberOutbox& out) {
  if (message.has_refused()) {
    return OnRefused(message.refused(), now, out);
  }
  stream.NoteHeard(now);
  rejoins = false;
  switch (message.kind_case()) {
    case wire::ToWorker::kWelcome:
      return OnWelcome(message.welcome(), out);
    case wire::ToWorker::kProfile:
      return measurements.AskForProfile(out);
    case wire::ToWorker::kMeasureLinks:
      return measurements.AskForLinks(message.measure_links(), out);
    case wire::ToWorker::kPrepare:
      if (message.prepare().generation() >= activity.fence()) {
        preparation.Take(message.prepare(), identity.name, out);
      }
      return;
    case wire::ToWorker::kStop:
      return activity.Stop(message.stop(), out);
    case wire::ToWorker::kSave:
      return activity.Save(message.save(), out);
    case wire::ToWorker::kHalt:
      activity.Halt(message.halt(), held, reports, out);
      return preparation.DropBelow(activity.fence());
    case wire::ToWorker::kStart:
      return OnStart(message.start(), out);
    case wire::ToWorker::kGo:
      return OnGo(message.go(), out);
    case wire::ToWorker::kEmulate:
      return OnEmulate(message.emulate(), out);
    case wire::ToWorker::kAlive:
      return reports.ForgetStepsThrough(
          std::min(message.alive().known_step(), held.applied_step()));
    case wire::ToWorker::kStay:
      return OnStay(message.stay(), out);
    case wire::ToWorker::kRelease:
      return message.release().requeue() ? out.Exit(kExitRequeue, "the job waits for workers: " +
                                                                      message.release().reason())
                                         : out.Exit(0, "released: " + message.release().reason());
    case wire::ToWorker::kAbandon:
      return out.Exit(1, "given up by the coordinator: " + message.abandon().reason());
    case wire::ToWorker::kRefused:
    case wire::ToWorker::KIND_NOT_SET:
      return;
  }
}

void Member::State::OnRefused(const wire::Refused& refused, Time now, MemberOutbox& out) {
  if (refused.rejoins() && refused.permanent()) {
    const std::string reason = "refused by the coordinator: " + refused.reason();
    return leaving.empty() ? out.BeginAnew(reason) : out.Exit(0, reason);
  }
  if (refused.permanent()) {
    return out.Exit(2, "refused by the coordinator: " + refused.reason());
  }
  rejoins = refused.rejoins() && leaving.empty();
  if (stream.Refuse(refused.reason(), refused.seconds(), now)) {
    out.Add(NoteRefusal{refused.reason()});
  }
}

void Member::State::OnWelcome(const wire::Welcome& welcome, MemberOutbox& out) {
  stream.Welcome();
  out.Open();
  if (job_id && *job_id != welcome.job_id()) {
    return out.Exit(1, "the coordinator runs another job now");
  }
  if (job_id && secret != welcome.secret()) {
    // The job was submitted again, to a coordinator without the earlier state: the generations and
    // steps that this worker knows are obsolete, and other workers would not connect to it.
    const std::string reason = "the job was submitted again";
    return leaving.empty() ? out.BeginAnew(reason) : out.Exit(0, reason);
  }
  identity.name = welcome.name();
  if (!job_id) {
    job_id = welcome.job_id();
    secret = welcome.secret();
    stream.BeginJob(welcome);
    out.Add(ApplyJob{welcome});
    OnEmulate(IsEmpty(identity.emulation) ? welcome.emulation() : identity.emulation, out);
  }
  Resend(welcome.known_step(), out);
}

void Member::State::OnEmulate(const wire::Emulation& emulation, MemberOutbox& out) {
  identity.emulation = emulation;
  out.Add(SetEmulation{emulation});
}

void Member::State::Resend(int64_t known_step, MemberOutbox& out) const {
  reports.SayStepsAfter(known_step, out);
  measurements.Resend(out);
  preparation.Resend(out);
  reports.SayOthersAgain(out);
  activity.Resend(out);
  if (!leaving.empty()) {
    SayLeaving(out);
  }
}

void Member::State::SayLeaving(MemberOutbox& out) const {
  wire::Leaving message;
  message.set_reason(leaving);
  message.set_notice(notices);
  out.Send(message);
}

void Member::State::OnTerminate(const std::string& reason, Time now, MemberOutbox& out) {
  if (!leaving.empty()) {
    return out.LeaveAtOnce(reason + ", twice", 1);
  }
  if (!job_id) {
    return out.Exit(kExitRequeue, reason + ", before a coordinator took this worker");
  }
  stream.NoteLeaving(now);
  leaving = reason;
  ++notices;
  SayLeaving(out);
}

void Member::State::OnStay(const wire::Stay& message, MemberOutbox& out) {
  if (!leaving.empty() && message.notice() >= notices) {
    leaving.clear();
    stream.ForgetLeaving();
    out.Add(ForgetSignals{});
  }
}

void Member::State::OnTick(const MemberTicked& event, Time now, MemberOutbox& out) {
  if (stream.TakeHeartbeat(now)) {
    SendToCoordinator action;
    wire::Heartbeat& message = *action.message.mutable_heartbeat();
    held.Describe(message);
    message.set_standing(activity.standing());
    Describe(window.last(), quick_window.last(), message);
    message.set_progress(event.progress);
    message.set_waits(event.waits);
    const size_t count = std::min(event.waits_for.size(), kMaxAwaited);
    message.mutable_waits_for()->Assign(event.waits_for.begin(),
                                        event.waits_for.begin() + static_cast<ptrdiff_t>(count));
    message.set_waits_generation(event.waits_generation);
    message.set_moved_bytes(event.moved_bytes);
    message.set_bytes_to_move(event.bytes_to_move);
    out.Add(std::move(action));
  }
  if (stream.IsLeftAlone(now)) {
    return out.LeaveAtOnce(leaving + ", and no coordinator lets it go", kExitRequeue);
  }
  if (activity.IsTraining()) {
    return;
  }
  if (const std::optional<std::string> reason = stream.GiveUp(now)) {
    rejoins ? out.BeginAnew(*reason) : out.Exit(1, *reason);
  }
}

// ---- Profile, plan and state ----

void Member::State::OnJobApplied(const JobApplied& event, MemberOutbox& out) {
  const Status& status = event.status;
  if (!status.ok()) {
    return out.LeaveAtOnce(status.ToString(),
                           status.code() == StatusCode::kInvalidArgument ? 2 : 1);
  }
  if (!event.arithmetic.empty()) {
    identity.arithmetic = event.arithmetic;
    identity.device_of_job = false;
    if (stream.connected()) {
      SayHello(out);
    }
  }
  measurements.Begin(out);
}

void Member::State::OnStart(const wire::Start& message, MemberOutbox& out) {
  const wire::Prepare* const prepare = preparation.Find(message.generation());
  if (prepare == nullptr || !activity.Start(message, out)) {
    return;
  }
  const bool counts = held.Settle(message, identity.name, reports, out);
  out.Add(MoveState{message, *prepare, counts ? message.held().plan_json() : std::string()});
}

void Member::State::OnGo(const wire::Go& message, MemberOutbox& out) {
  if (!activity.AwaitsGo(message.generation())) {
    return;
  }
  held.Adopt(out);
  const int rank = preparation.RankOf(identity.name);
  if (rank < 0) {  // This worker only gave its state away.
    held.Drop();
    reports.ForgetStepsAfter(0);
    return activity.Rest();
  }
  window.BeginGeneration();
  quick_window.BeginGeneration();
  activity.Train(rank, out);
}

// ---- While steps run ----

void Member::State::OnStep(const StepApplied& event, MemberOutbox& out) {
  held.Apply(event.record);
  reports.AddStep(event.record);
  window.Count(event);
  quick_window.Count(event);
  if (activity.Leads()) {
    wire::StepDone message;
    *message.add_records() = event.record;
    out.Send(message);
  }
}

// ---- The machine ----

Member::Member(MemberIdentity identity, MemberOptions options, Time now)
    : state_(std::make_unique<State>(std::move(identity), options, now)) {}

Member::Member(const Member& other) : state_(std::make_unique<State>(*other.state_)) {}
Member& Member::operator=(const Member& other) {
  if (this != &other) {
    state_ = std::make_unique<State>(*other.state_);
  }
  return *this;
}
Member::Member(Member&& other) noexcept = default;
Member& Member::operator=(Member&& other) noexcept = default;
Member::~Member() = default;

std::vector<MemberAction> Member::Handle(const MemberEvent& event, Time now) {
  MemberOutbox out(state_->stream.welcomed());
  if (!state_->exited) {
    state_->Handle(event, now, out);
    state_->exited = out.exits();
  }
  return out.Take();
}

std::optional<Time> Member::NextDeadline() const {
  return state_->exited ? std::nullopt : state_->stream.NextDeadline(state_->activity.IsTraining());
}

const std::string& Member::name() const {
  return state_->identity.name;
}
wire::Standing Member::standing() const {
  return state_->activity.standing();
}
int64_t Member::held_generation() const {
  return state_->held.generation();
}
int64_t Member::applied_step() const {
  return state_->held.applied_step();
}

}  // namespace heddle::elastic
