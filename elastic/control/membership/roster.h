/// \file
/// The workers: who has come, who is still heard, who was given up. Whether a worker is a member of
/// the generation in force is not its affair (generations.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/actions.h"
#include "elastic/control/durable.h"
#include "elastic/control/membership/worker.h"
#include "elastic/control/outbox.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Roster {
 public:
  /// What becomes of a Hello.
  struct Answer {
    enum class Kind : uint8_t {
      kRefuse,    ///< With reason and permanent.
      kReturn,    ///< Of a worker that is known.
      kJoin,      ///< Of a new one.
      kReplace,   ///< Likewise; the one of its name is to be given up first.
      kReleased,  ///< Of one that was released and did not hear it.
    };
    Kind kind = Kind::kRefuse;
    std::string reason = {};
    bool permanent = true;
    bool rejoins = false;  ///< kRefuse: its process may begin anew, without what it holds.
    wire::Release release = {};
  };

  const std::map<std::string, Worker>& workers() const { return workers_; }
  /// Null: not known, or given up.
  const Worker* Find(const std::string& name) const;
  const Worker& at(const std::string& name) const { return workers_.at(name); }

  /// `ended`: the job has.
  Answer Judge(const wire::Hello& hello, bool ended, Time now, Duration lease) const;
  /// A new worker's name: the one that it asks for, or the next number.
  std::string Join(ConnectionId connection, const wire::Hello& hello, Time now);
  void Return(ConnectionId connection, const wire::Hello& hello, Time now, Outbox& out);
  /// Tells it the job. `again`: it returned.
  void Welcome(
      const std::string& name, bool again, const Job& job, int64_t known_step, Outbox& out);

  /// Whether the stream is a worker's.
  bool Speaks(ConnectionId connection) const;
  /// Whose stream it is; that worker lives. Null: nobody's.
  const Worker* Hear(ConnectionId connection, Time now);
  /// The worker whose stream broke; empty: nobody's.
  std::string Disconnect(ConnectionId connection, Time now);

  /// One worker of a host at a time, and none on a busy one.
  void ScheduleProfiles(std::set<std::string> busy_hosts, Duration timeout, Time now, Outbox& out);
  void TakeProfile(const std::string& name, const std::string& profile_json);
  /// With progress, a profile that is being measured may take `profile_timeout` from now on.
  void TakeHeartbeat(const std::string& name,
                     const wire::Heartbeat& message,
                     Duration profile_timeout,
                     Time now);
  void SetStanding(const std::string& name, wire::Standing standing);
  /// Everybody's standing, once a generation is in force.
  void BeginGeneration(int64_t number, const std::map<std::string, std::string>& members);

  /// `noticed`: its process ends whatever is decided. `notice`: which of its notices says so; 0:
  /// none does.
  void Drain(const std::string& name,
             const std::string& reason,
             bool noticed = false,
             int64_t notice = 0);
  /// It leaves no longer. `withdraws`: nor for any notice that it has told of. False: it does not
  /// leave.
  bool Stay(const std::string& name, bool withdraws);
  /// The worker's limits afterwards; none: there is no such worker.
  std::optional<wire::Emulation> Emulate(const std::string& name,
                                         const wire::Emulation& limits,
                                         bool speed,
                                         bool memory,
                                         bool link,
                                         Outbox& out);

  /// Those of whom nothing is heard; all others are there.
  void SetAbsent(const std::set<std::string>& names);
  /// Takes it off every list; its process may run on (cut off), but nothing that it says counts.
  /// `reason` empty: it may come again.
  void Dismiss(const std::string& name, const std::string& reason, bool rejoins, Outbox& out);

  /// One that is about to be dismissed is told this when it comes back.
  void KeepRelease(const std::string& name, bool requeue);

  /// The list of job.json where it has changed since; `idle`: there is no job yet.
  std::optional<ListWorkers> TakeList(bool idle);
  void Restore(const DurableState& durable, Time now);
  void Store(DurableState& durable) const;
  Status Check() const;

 private:
  std::map<std::string, Worker> workers_;
  std::map<ConnectionId, std::string> connections_;
  struct Gone {
    std::string reason;
    bool rejoins = false;
  };
  std::map<std::string, Gone> gone_;      ///< Incarnations that were given up, and why.
  std::vector<DurableRelease> releases_;  ///< In order, so many of the newest ones.
  int64_t next_number_ = 1;
  bool list_changed_ = false;
};

/// Nobody leaves any longer, for now: each may be asked again.
void RefuseDrains(Roster& roster, const std::string& reason, Outbox& out);
/// Those that a plan may count on.
std::set<std::string> CandidatesOf(const Roster& roster);
/// Likewise; where they are fewer than `least`, those that leave, too: until then they can carry
/// it.
std::set<std::string> CarriersOf(const Roster& roster, int least);
/// Nobody is there that a plan may count on, and somebody who leaves.
bool AllLeave(const Roster& roster);
/// Somebody leaves whatever is decided.
bool AnyNoticed(const Roster& roster);
/// Hosts on which a profile is measured: what is measured beside it would measure that too.
std::set<std::string> ProfilingHosts(const Roster& roster);

}  // namespace heddle::elastic
