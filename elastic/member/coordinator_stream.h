/// \file
/// A worker's view of its stream to the coordinator: when a heartbeat is due, and for how long the
/// worker waits for a silent coordinator.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// The timers of the stream to the coordinator. Thread: one caller at a time. A copy is an
/// independent machine.
class CoordinatorStream {
 public:
  /// `patience`: how long to wait for the coordinator, until BeginJob sets the job's period.
  CoordinatorStream(Duration patience, Time now)
      : last_word_(now),
        held_off_until_(now),
        next_heartbeat_(now),
        patience_(patience) {}

  /// Notes that a stream is up.
  void Connect(Time now);
  /// Notes that the stream has ended.
  void Disconnect() { connected_ = welcomed_ = false; }
  /// Notes that the coordinator has welcomed this worker on the current stream.
  void Welcome() { welcomed_ = true; }
  /// Takes the job's periods from the first Welcome.
  void BeginJob(const wire::Welcome& welcome);
  /// Notes a message of the coordinator other than a refusal.
  void NoteHeard(Time now);
  /// Notes that this worker was told to end; the coordinator has the job's notice to release it.
  void NoteLeaving(Time now) { leave_by_ = now + notice_; }
  /// Notes that this worker stays after all.
  void ForgetLeaving() { leave_by_.reset(); }
  /// True if this worker was told to end, the notice is over, and the coordinator has been silent
  /// for ten heartbeat periods.
  bool IsLeftAlone(Time now) const { return leave_by_ && now >= AloneAt(); }
  /// Notes a refusal. True if its reason differs from the last one's. `seconds`: how long the
  /// coordinator holds this worker off, of which at most a day counts; patience begins afterwards.
  bool Refuse(const std::string& reason, double seconds, Time now);

  /// True if a stream is up.
  bool connected() const { return connected_; }
  /// True if the coordinator has welcomed this worker on the current stream.
  bool welcomed() const { return welcomed_; }
  /// True if a heartbeat is due now; the next one is due a period later.
  bool TakeHeartbeat(Time now);
  /// Why the worker gives up waiting for the coordinator; nullopt while it waits.
  std::optional<std::string> GiveUp(Time now) const;
  /// When the next heartbeat is due or a wait ends; nullopt: nothing is due. `running`: steps run
  /// here, so that the wait for a silent coordinator has no bound.
  std::optional<Time> NextDeadline(bool running) const;

 private:
  /// When IsLeftAlone becomes true. The coordinator answers every heartbeat, so that ten periods of
  /// silence are enough. Precondition: leave_by_.
  Time AloneAt() const { return std::max(*leave_by_, last_word_ + 10 * heartbeat_); }
  Time PatientUntil() const { return std::max(last_word_, held_off_until_) + patience_; }

  bool connected_ = false;
  bool welcomed_ = false;
  Time last_word_;       ///< When the last message other than a refusal came.
  Time held_off_until_;  ///< A time in the past: the worker is not held off.
  std::string refusal_;  ///< The reason of the last refusal; empty: none since last_word_.
  Time next_heartbeat_;
  Duration heartbeat_ = std::chrono::milliseconds(200);
  Duration patience_;
  Duration notice_ = Duration::zero();
  std::optional<Time> leave_by_;  ///< When the notice is over; nullopt: the worker stays.
};

}  // namespace heddle::elastic
