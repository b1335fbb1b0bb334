/// \file
/// The workers: which have joined, which are still heard, which were given up. Generations
/// (generations.h) knows which of them are members of the generation in force.
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

/// The workers of a job, by name and by connection. Thread: one caller at a time. A copy is an
/// independent machine.
class Roster {
 public:
  /// How a Hello is answered.
  struct Answer {
    enum class Kind : uint8_t {
      kRefuse,    ///< The worker is refused: see reason, permanent and rejoins.
      kReturn,    ///< A known worker returns.
      kJoin,      ///< A new worker joins.
      kReplace,   ///< A new worker joins, once the worker of its name is given up.
      kReleased,  ///< The worker was released and did not hear it: see release.
    };
    Kind kind = Kind::kRefuse;
    std::string reason = {};
    bool permanent = true;
    bool rejoins = false;  ///< kRefuse: the process may drop its state and join as a new worker.
    wire::Release release = {};
  };

  const std::map<std::string, Worker>& workers() const { return workers_; }
  /// The worker of this name; null if it is unknown or was given up.
  const Worker* Find(const std::string& name) const;
  const Worker& at(const std::string& name) const { return workers_.at(name); }

  /// Decides how a Hello is answered. `ended`: the job has ended.
  Answer Judge(const wire::Hello& hello, bool ended, Time now, Duration lease) const;
  /// Adds a new worker and returns its name: the one that it asks for, or the next numbered one.
  std::string Join(ConnectionId connection, const wire::Hello& hello, Time now);
  /// Updates a known worker that came back on `connection`, and closes its former connection.
  void Return(ConnectionId connection, const wire::Hello& hello, Time now, Outbox& out);
  /// Sends the job to the worker. `again`: it was known before and returned.
  void Welcome(
      const std::string& name, bool again, const Job& job, int64_t known_step, Outbox& out);

  /// True if the connection is the current one of a worker.
  bool Speaks(ConnectionId connection) const;
  /// Records that the worker of the connection was heard, and returns it; null if there is none.
  const Worker* NoteHeard(ConnectionId connection, Time now);
  /// Records that the connection broke, and returns the worker's name; empty if it had none.
  std::string Disconnect(ConnectionId connection, Time now);

  /// Asks workers without a profile to measure one: one worker of a host at a time, and none on
  /// `busy_hosts`.
  void ScheduleProfiles(std::set<std::string> busy_hosts, Duration timeout, Time now, Outbox& out);
  void TakeProfile(const std::string& name, const std::string& profile_json);
  /// Records a heartbeat. If it reports progress, a profile that is being measured may take
  /// `profile_timeout` from `now` on.
  void TakeHeartbeat(const std::string& name,
                     const wire::Heartbeat& message,
                     Duration profile_timeout,
                     Time now);
  void SetStanding(const std::string& name, wire::Standing standing);
  /// Sets the standing of all workers as a generation comes into force.
  void BeginGeneration(int64_t number, const std::map<std::string, std::string>& members);

  /// Marks the worker as leaving. `noticed`: its process ends whatever is decided. `notice`: the
  /// number of the termination notice that says so; 0 if none does.
  void Drain(const std::string& name,
             const std::string& reason,
             bool noticed = false,
             int64_t notice = 0);
  /// The worker no longer leaves. `withdraws`: the termination notices that it has reported no
  /// longer count. Returns false if it was not leaving.
  bool Stay(const std::string& name, bool withdraws);
  /// Changes the emulated limits that the flags select, and tells the worker. Returns its limits
  /// afterwards; nullopt if there is no such worker.
  std::optional<wire::Emulation> Emulate(const std::string& name,
                                         const wire::Emulation& limits,
                                         bool speed,
                                         bool memory,
                                         bool link,
                                         Outbox& out);

  /// Marks the workers of `names`, and no others, as absent.
  void SetAbsent(const std::set<std::string>& names);
  /// Removes the worker. Its process may run on (cut off), but its messages no longer count: a
  /// Hello of its incarnation is refused with `reason` and `rejoins`. `reason` empty: it may come
  /// again.
  void Dismiss(const std::string& name, const std::string& reason, bool rejoins, Outbox& out);

  /// Keeps the release of a worker that is about to be dismissed, to answer it if it comes back.
  void KeepRelease(const std::string& name, bool requeue);

  /// The worker list of job.json if it has changed since the last call. `idle`: there is no job
  /// yet, and workers that were not welcomed are listed, too.
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
  std::map<std::string, Gone> gone_;      ///< By incarnation that was given up: why.
  std::vector<DurableRelease> releases_;  ///< The newest releases, the oldest first.
  int64_t next_number_ = 1;
  bool list_changed_ = false;
};

/// What the process says of itself.
WorkerIdentity IdentityOf(const wire::Hello& hello);
/// No worker leaves any longer, for `reason`; each may be asked again.
void RefuseDrains(Roster& roster, const std::string& reason, Outbox& out);
/// The names of the workers that a plan may count on.
std::set<std::string> CandidatesOf(const Roster& roster);
/// The candidates and, if they are fewer than `least`, also leaving workers: they can run the plan
/// until they leave.
std::set<std::string> CarriersOf(const Roster& roster, int least);
/// True if there is no candidate and at least one worker leaves.
bool AllLeave(const Roster& roster);
/// True if the process of at least one worker ends whatever is decided.
bool AnyNoticed(const Roster& roster);
/// Hosts on which a profile is being measured; another measurement there would be disturbed by it.
std::set<std::string> ProfilingHosts(const Roster& roster);

}  // namespace heddle::elastic
