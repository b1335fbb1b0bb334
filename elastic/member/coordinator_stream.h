/// \file
/// The stream to the coordinator as this worker sees it: when a heartbeat is due, and for how long
/// a coordinator that says nothing is waited for.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class CoordinatorStream {
 public:
  /// `patience`: until the job says how long to wait.
  CoordinatorStream(Duration patience, Time now)
      : last_word_(now),
        held_off_until_(now),
        next_heartbeat_(now),
        patience_(patience) {}

  void Connect(Time now);
  void Disconnect() { connected_ = welcomed_ = false; }
  void Welcome() { welcomed_ = true; }
  /// The first Welcome: its periods are those of the job.
  void BeginJob(const wire::Welcome& welcome);
  /// A word of the coordinator, which is no refusal.
  void Hear(Time now);
  /// This worker is told to end: it is to be released within the job's notice.
  void NoteLeaving(Time now) { leave_by_ = now + notice_; }
  /// It stays.
  void ForgetLeaving() { leave_by_.reset(); }
  /// The notice is over, and no word of the coordinator is on its way.
  bool IsLeftAlone(Time now) const { return leave_by_ && now >= AloneAt(); }
  /// Whether the reason is another one than before. `seconds`: for so long the coordinator holds
  /// this worker off, at most a day of which is believed; patience begins then.
  bool Refuse(const std::string& reason, double seconds, Time now);

  bool welcomed() const { return welcomed_; }
  /// Whether one is to be sent now; the next one is due a period later.
  bool TakeHeartbeat(Time now);
  /// Why the coordinator is not waited for any longer; none: it is.
  std::optional<std::string> GiveUp(Time now) const;
  /// `running`: steps run here, so that nobody waits for the coordinator.
  std::optional<Time> NextDeadline(bool running) const;

 private:
  /// Once it leaves. Each heartbeat is answered.
  Time AloneAt() const { return std::max(*leave_by_, last_word_ + 10 * heartbeat_); }
  Time PatientUntil() const { return std::max(last_word_, held_off_until_) + patience_; }

  bool connected_ = false;
  bool welcomed_ = false;  ///< On this stream.
  Time last_word_;
  Time held_off_until_;  ///< Long ago: it is not.
  std::string refusal_;  ///< The newest reason not to take this worker; empty: none since a word.
  Time next_heartbeat_;
  Duration heartbeat_ = std::chrono::milliseconds(200);
  Duration patience_;
  Duration notice_ = Duration::zero();
  std::optional<Time> leave_by_;  ///< None: it stays.
};

}  // namespace heddle::elastic
