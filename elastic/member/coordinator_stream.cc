#include "elastic/member/coordinator_stream.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

constexpr double kMaxHeldOffSeconds = 86'400;

}  // namespace

void CoordinatorStream::Connect(Time now) {
  connected_ = true;
  welcomed_ = false;
  next_heartbeat_ = now + heartbeat_;
}

void CoordinatorStream::BeginJob(const wire::Welcome& welcome) {
  if (welcome.heartbeat_seconds() > 0) {
    heartbeat_ = FromSeconds(welcome.heartbeat_seconds());
  }
  patience_ = FromSeconds(welcome.coordinator_wait_seconds());
  notice_ = FromSeconds(welcome.notice_seconds());
}

void CoordinatorStream::NoteHeard(Time now) {
  last_word_ = now;
  refusal_.clear();
}

bool CoordinatorStream::Refuse(const std::string& reason, double seconds, Time now) {
  if (seconds > 0) {
    held_off_until_ = now + FromSeconds(std::min(seconds, kMaxHeldOffSeconds));
  }
  const bool another = reason != refusal_;
  refusal_ = reason;
  return another;
}

bool CoordinatorStream::TakeHeartbeat(Time now) {
  const bool due = connected_ && now >= next_heartbeat_;
  if (due) {
    next_heartbeat_ = now + heartbeat_;
  }
  return due;
}

std::optional<std::string> CoordinatorStream::GiveUp(Time now) const {
  if (now < PatientUntil()) {
    return std::nullopt;
  }
  const auto seconds = static_cast<int64_t>(Seconds(patience_));
  return refusal_.empty()
             ? fmt::format("no word from the coordinator for {} s", seconds)
             : fmt::format("refused by the coordinator for {} s: {}", seconds, refusal_);
}

std::optional<Time> CoordinatorStream::NextDeadline(bool running) const {
  std::optional<Time> next;
  if (connected_) {
    next = next_heartbeat_;
  }
  if (!running) {
    const Time end = PatientUntil();
    next = next ? std::min(*next, end) : end;
  }
  if (leave_by_) {
    next = next ? std::min(*next, AloneAt()) : AloneAt();
  }
  return next;
}

}  // namespace heddle::elastic
