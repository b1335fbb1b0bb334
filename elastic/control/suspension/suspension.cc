#include "elastic/control/suspension/suspension.h"

#include <algorithm>

#include "elastic/control/deadline.h"

namespace heddle::elastic {
namespace {

wire::Stop MakeStop(const Generations& generations) {
  wire::Stop stop;
  stop.set_generation(generations.held()->number);
  return stop;
}

wire::Save MakeSave(const Generations& generations, int64_t step) {
  wire::Save save;
  save.set_generation(generations.held()->number);
  save.set_step(step);
  return save;
}

}  // namespace

bool Suspension::IsStopping() const {
  return active_ && std::holds_alternative<Stopping>(active_->stage);
}

void Suspension::NoteLeaving(bool all, Duration notice, Time now) {
  if (!all) {
    leave_by_.reset();
  } else if (!leave_by_) {
    leave_by_ = now + notice;
  }
}

void Suspension::Begin(
    const Roster& roster, const Generations& generations, Duration notice, Time now, Outbox& out) {
  Stopping stopping;
  const wire::Stop stop = MakeStop(generations);
  for (const auto& [name, incarnation] : generations.held()->members) {
    stopping.awaited.insert(name);
    out.Tell(roster.at(name).connection, stop);
  }
  active_ = Active{.deadline = leave_by_.value_or(now + notice), .stage = std::move(stopping)};
}

bool Suspension::TakeStopped(const std::string& worker,
                             int64_t generation,
                             int64_t applied_step,
                             const Roster& roster,
                             const Generations& generations,
                             Outbox& out) {
  auto* stopping = active_ ? std::get_if<Stopping>(&active_->stage) : nullptr;
  if (stopping == nullptr || generation != generations.held()->number ||
      stopping->awaited.erase(worker) == 0) {
    return true;
  }
  if (stopping->applied_step && *stopping->applied_step != applied_step) {
    return false;
  }
  stopping->applied_step = applied_step;
  if (stopping->awaited.empty()) {
    active_->stage = Saving{applied_step};
    const wire::Save save = MakeSave(generations, applied_step);
    for (const auto& [name, incarnation] : generations.held()->members) {
      out.Tell(roster.at(name).connection, save);
    }
  }
  return true;
}

std::optional<Suspension::Outcome> Suspension::Look(const Generations& generations,
                                                    const Saves& saves,
                                                    Time now) const {
  if (!active_) {
    return std::nullopt;
  }
  const auto* saving = std::get_if<Saving>(&active_->stage);
  if (saving != nullptr && saves.IsCommitted(saving->step)) {
    return Outcome{};
  }
  const std::string why =
      saving == nullptr ? "" : saves.WhyFailed(saving->step, generations.held()->number);
  if (!why.empty()) {
    return Outcome{"the state after step " + std::to_string(saving->step) +
                   " was not saved: " + why};
  }
  if (now < active_->deadline) {
    return std::nullopt;
  }
  return saving == nullptr ? Outcome{"the step did not end in time"}
                           : Outcome{"the state after step " + std::to_string(saving->step) +
                                     " was not saved in time"};
}

void Suspension::Resend(const Worker& worker, const Generations& generations, Outbox& out) const {
  if (!active_ || !generations.IsMember(worker.name)) {
    return;
  }
  if (const auto* saving = std::get_if<Saving>(&active_->stage)) {
    out.Tell(worker.connection, MakeSave(generations, saving->step));
  } else if (std::get<Stopping>(active_->stage).awaited.count(worker.name) > 0) {
    out.Tell(worker.connection, MakeStop(generations));
  }
}

std::optional<Time> Suspension::NextDeadline() const {
  std::optional<Time> next = gathered_at_;
  if (active_) {
    Earlier(next, active_->deadline);
  } else if (leave_by_) {
    Earlier(next, *leave_by_);
  }
  return next;
}

bool Suspension::Gathers(const Roster& roster, Duration patience, Time now) {
  const auto& workers = roster.workers();
  const auto leaving = static_cast<size_t>(std::count_if(
      workers.begin(), workers.end(), [](const auto& worker) { return worker.second.draining; }));
  if (leaving > leaving_) {
    gathered_at_ = now + patience;
  }
  leaving_ = leaving;
  if (leaving == 0 || (gathered_at_ && now >= *gathered_at_)) {
    gathered_at_.reset();
  }
  return gathered_at_.has_value();
}

Status Suspension::Check(const Generations& generations) const {
  if (!active_) {
    return Status::Ok();
  }
  if (!generations.held()) {
    return InternalError("a job is being suspended of which nobody holds anything");
  }
  if (generations.held()->members.size() != generations.held()->plan.members.size()) {
    return InternalError("a job is being suspended that has lost members");
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
