/// \file
/// The simulation's state of one worker's process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/connection.h"
#include "elastic/member/member.h"
#include "tests/elastic/simulation/world/clock.h"

namespace heddle::elastic {

/// Fingerprints of the job's data, and of the other data that a misconfigured worker reads.
inline constexpr uint64_t kJobData = 7;
inline constexpr uint64_t kOtherData = 8;

/// One parameter's state.
struct SimParameter {
  int64_t step = 0;    ///< The last step applied.
  uint64_t chain = 0;  ///< The hash of all updates.
  /// The number of the last bit flip in it, or in the state it was made from (Alterations); 0:
  /// none.
  int64_t altered = 0;
};
using SimState = std::map<int32_t, SimParameter>;

/// The certificate that a worker sends of its state: digests of all parameters that it holds.
wire::Certificate SimCertificate(const SimState& state, int64_t step);

/// The step and generation of a snapshot in memory.
using SnapshotKey = std::pair<int64_t, int64_t>;

/// One direction of a stream between a worker and the coordinator.
struct SimDirection {
  Time blocked_until;  ///< Messages arrive after this; if the stream breaks before, they are lost.
  Time last_arrival;   ///< The last scheduled arrival: a stream keeps its messages' order.
};

/// The connection of a worker to the coordinator.
struct SimControl {
  ConnectionId connection = 0;  ///< 0: there is no stream.
  Time connected_at;
  SimDirection to_coordinator;
  SimDirection from_coordinator;
  Time elsewhere_until;  ///< Until then the coordinator's name leads to another job's coordinator.
  Time late_until;       ///< Until then all messages take longer.
  bool reconnecting = false;
  bool asks_another = false;  ///< The worker's messages go to another job's coordinator.
  std::optional<wire::Hello> another_hello = {};  ///< The Hello sent to that coordinator.

  /// The time from which messages arrive again in both directions.
  Time blocked_until() const {
    return std::max(
        {to_coordinator.blocked_until, from_coordinator.blocked_until, elsewhere_until});
  }
};

/// The outcome of the next plan that a worker is to lower: a program, an error, or another program
/// than the coordinator expects.
enum class Lowering : uint8_t { kWorks, kFails, kDiffers };

/// The reason why no coordinator accepts a worker.
enum class Strange : uint8_t { kNot, kVersion, kName, kDomain, kHost, kIncarnation };
inline constexpr int kStrangeKinds = static_cast<int>(Strange::kIncarnation) + 1;

/// A worker's run of steps.
struct SimRun {
  int64_t generation = 0;
  int64_t step = 0;  ///< The step in flight.
  bool voted = false;
  bool learned = false;
  bool stop = false;        ///< The coordinator asked the worker to stop.
  bool group_stop = false;  ///< The vote that the worker learned decided to stop.
  double noise = 1;         ///< The factor by which its part of the step in flight takes longer.
  int64_t number = 0;
  Time began;
  std::vector<std::string> members;  ///< The members' keys, by rank.
  std::vector<std::string> holders;  ///< The keys of the holders of this worker's snapshots.
  int rank = 0;
  int64_t group = 0;  ///< The number of the members' group: unlike `generation`, unique over eras.
};

/// The alteration of state that a worker receives from others' memory.
struct SimChanges {
  Time until;
  bool once = false;   ///< Only the first copy is altered.
  bool taken = false;  ///< The worker did not notice the alteration (Planted::kTrustMoves).
};

/// The workers for which a worker reports to wait.
struct SimWaits {
  bool any = false;
  std::vector<std::string> names;
  int64_t generation = 0;

  void Begin(const std::string& other, int64_t of) {
    any = true;
    names = {other};
    generation = of;
  }
  void End() {
    any = false;
    names.clear();
  }
};

/// The state of a worker's trainer.
struct SimTrainer {
  int64_t fence = 0;
  SimState held;
  int64_t held_generation = 0;
  SimState staged;
  int64_t staged_generation = 0;
  int64_t staged_step = 0;
  std::map<SnapshotKey, std::map<int32_t, SimState>> parts;  ///< Shards of snapshots, by owner.
  std::optional<MoveState> moving;
  int64_t move_number = 0;
  int64_t moved_generation = 0;  ///< The newest generation whose state has come in full.
  int64_t progress = 0;
  SimWaits waits;
  /// The trainer does nothing any more, while the worker's heartbeats go on; they may report that
  /// it waits.
  bool stuck = false;
  std::optional<SimRun> run;
  Time last_applied;  ///< When it last applied a step.
  Lowering lowering = Lowering::kWorks;
  bool fails = false;  ///< Its next work fails, by its own fault.
  SimChanges changes;
  int64_t saved_step = -1;  ///< The step whose save was begun last.
  /// The step whose complete gradients are kept after a failed run; 0: none.
  int64_t kept_vote = 0;
};

/// An error that no other worker caused.
inline Status OwnFault() {
  return InternalError("the device is gone");
}

/// The secret that the job's processes share in an era (Fleet::era).
inline std::string SecretOf(int64_t era) {
  return "secret " + std::to_string(era);
}

/// The state of one worker's process.
struct SimWorker {
  SimWorker(std::string its_key, const SimClock& its_clock)
      : key(std::move(its_key)),
        clock(its_clock) {}

  const std::string key;  ///< Names the process; later processes may use its name again.
  int64_t era = 0;        ///< The era of the coordinator that welcomed it last.
  int64_t welcome = 0;    ///< The number of its last welcome among all workers'; 0: none yet.
  SimClock clock;
  std::unique_ptr<Member> member;
  std::string incarnation;
  std::string secret;  ///< From its last welcome: it connects only to workers with the same one.
  std::string host;
  int64_t pid = 0;
  bool alive = true;
  bool exited = false;
  bool noticed = false;        ///< It was told to end.
  int64_t notices = 0;         ///< How often it was told to end.
  bool dies_soon = false;      ///< A fault will kill it soon.
  int kind = 0;                ///< Workers of one kind compute alike.
  bool device_of_job = false;  ///< It says so only once it has read the job.
  bool absurd = false;         ///< No plan can be found with its profile.
  uint64_t data = kJobData;    ///< The fingerprint of the data that it reads.
  Strange strange = Strange::kNot;
  std::optional<Time> stopped_until;           ///< The end of a SIGSTOP, or of its machine's pause.
  std::deque<std::function<void()>> deferred;  ///< Its calls that were due while it was stopped.
  double slowdown = 1;                         ///< The factor by which its work takes longer.
  double usual_slowdown = 1;                   ///< The same while no fault slows it.
  double link_slowdown = 1;                    ///< The factor by which its links are slower.
  bool held_up = false;                        ///< Whether others use its machine now.
  Time turn_ends;                              ///< Until then held_up stays as it is.
  std::optional<Time> tick_at;                 ///< The next tick, as its clock shows it.
  std::optional<Time> cut_until;               ///< Until then it is cut off from all others.
  SimControl control;
  SimTrainer trainer;

  bool runs() const { return alive && !exited; }
};

}  // namespace heddle::elastic
