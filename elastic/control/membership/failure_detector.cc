#include "elastic/control/membership/failure_detector.h"

#include <algorithm>

#include <fmt/format.h>

#include "elastic/control/deadline.h"

namespace heddle::elastic {
namespace {

// A step may take this many times its usual time before it counts as not completed, because saves,
// validation and other work of the machine come between.
constexpr double kSlowestStep = 3;

// Without a completed step for this long, the generation stands still.
Duration StandsStill(const JobPolicy& policy, double step_seconds) {
  return std::max(policy.lease, FromSeconds(kSlowestStep * step_seconds));
}

// A worker counts as heard for this long after a message. Workers that fall silent together sent
// their last messages at slightly different times: none of them counts as heard when the first
// lease ends, because a lease is longer than this by several heartbeats.
Duration Fresh(const JobPolicy& policy) {
  return policy.lease / 2;
}

bool IsHeard(const Worker& worker, const JobPolicy& policy, Time now) {
  return worker.seen && worker.connection != 0 && now - worker.last_heard_at < Fresh(policy);
}

// When any worker was last heard; nullopt if none has joined.
std::optional<Time> LastHeardAt(const Roster& roster) {
  std::optional<Time> newest;
  for (const auto& [name, worker] : roster.workers()) {
    if (worker.seen && (!newest || worker.last_heard_at > *newest)) {
      newest = worker.last_heard_at;
    }
  }
  return newest;
}

}  // namespace

bool FailureDetector::NoteHeard(const Roster& roster, const JobPolicy& policy, Time now) {
  const std::optional<Time> newest = LastHeardAt(roster);
  const bool first = newest && now - *newest >= Fresh(policy);
  if (first) {
    Excuse(now + policy.lease + policy.adopt_extra);
  }
  cut_off_since_.reset();
  return first;
}

void FailureDetector::NoteStep(int64_t generation, int64_t step, Time now) {
  if (generation > generation_ || (generation == generation_ && step > step_)) {
    generation_ = generation;
    step_ = step;
    stepped_at_ = now;
  }
}

FailureDetector::Verdict FailureDetector::Judge(const View& view) {
  judged_at_ = view.now;
  bool anybody = false;
  bool a_member = false;
  for (const auto& [name, worker] : view.roster.workers()) {
    const bool heard = IsHeard(worker, view.policy, view.now);
    anybody = anybody || heard;
    a_member = a_member || (heard && view.generations.IsMember(name));
  }
  const std::optional<Time> newest = LastHeardAt(view.roster);
  const bool cut_off = newest && !anybody && view.now - *newest < view.policy.cut_off_timeout;
  cut_off_since_ = cut_off && view.now - *newest >= view.policy.lease ? newest : std::nullopt;
  Verdict verdict;
  if (cut_off || view.now < excused_until_) {
    for (const auto& [name, worker] : view.roster.workers()) {
      if (worker.absent) {  // It stays absent until it is heard.
        verdict.absent.insert(name);
      }
    }
    return verdict;
  }
  for (const auto& [name, worker] : view.roster.workers()) {
    JudgeOne(worker, a_member, view, verdict);
  }
  return verdict;
}

void FailureDetector::JudgeOne(const Worker& worker,
                               bool a_member_is_heard,
                               const View& view,
                               Verdict& verdict) const {
  const JobPolicy& policy = view.policy;
  const bool broken = worker.broken_at && view.now - *worker.broken_at >= policy.reconnect_grace;
  const bool silent = view.now - worker.last_heard_at >= policy.lease;
  if (!worker.seen) {
    return;  // The end of the adoption decides about it.
  }
  if (!broken && !silent) {
    if (worker.profiling_until && view.now >= *worker.profiling_until) {
      verdict.lost.push_back({worker.name, "profiling did not end in time"});
    }
  } else {
    const bool member = view.generations.IsMember(worker.name);
    const bool trains =
        view.steps_run && member &&
        (!silent ||
         (a_member_is_heard && view.now - stepped_at_ < StandsStill(policy, view.step_seconds)));
    const bool stands_by = !member && view.involved.count(worker.name) == 0;
    // Not for ever, because reports of its saves and its speed are missed, too.
    if ((trains || stands_by) && view.now - worker.last_heard_at < policy.cut_off_timeout) {
      verdict.absent.insert(worker.name);
      return;
    }
    verdict.lost.push_back(
        {worker.name, broken ? std::string("its connection broke")
                             : fmt::format("no heartbeat for {:.1f} s",
                                           Seconds(view.now - worker.last_heard_at))});
  }
}

std::optional<Time> FailureDetector::NextDeadline(const Roster& roster,
                                                  double step_seconds,
                                                  const JobPolicy& policy) const {
  std::optional<Time> next;
  const auto look_at = [&](Time when) {
    const Time due = std::max(when, excused_until_);
    if (due > judged_at_) {
      Earlier(next, due);
    }
  };
  for (const auto& [name, worker] : roster.workers()) {
    if (!worker.seen) {
      continue;
    }
    look_at(worker.last_heard_at + policy.lease);
    if (judged_at_ - worker.last_heard_at >= policy.lease) {
      look_at(worker.last_heard_at + policy.cut_off_timeout);
      look_at(stepped_at_ + StandsStill(policy, step_seconds));
    }
    if (worker.broken_at) {
      look_at(*worker.broken_at + policy.reconnect_grace);
    }
    if (worker.profiling_until) {
      look_at(*worker.profiling_until);
    }
  }
  return next;
}

}  // namespace heddle::elastic
