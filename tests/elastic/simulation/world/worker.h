/// \file
/// What the simulation knows of one worker's process.
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

/// Fingerprints of the job's data, and of what a worker reads that sees others at their place.
inline constexpr uint64_t kJobData = 7;
inline constexpr uint64_t kOtherData = 8;

/// One parameter's state: after how many steps, and the hash of all of them.
struct SimParameter {
  int64_t step = 0;
  uint64_t chain = 0;
  /// The last bit that flipped in it, or in what it was made from (Alterations); 0: none did.
  int64_t altered = 0;
};
using SimState = std::map<int32_t, SimParameter>;

/// What a worker tells of its state, digests of all that it holds.
wire::Certificate SimCertificate(const SimState& state, int64_t step);

/// A snapshot in memory, by step and generation.
using SnapshotKey = std::pair<int64_t, int64_t>;

/// One direction of a stream.
struct SimDirection {
  Time blocked_until;  ///< What is said comes later; a stream that breaks meanwhile loses it.
  Time last_arrival;   ///< Scheduled: streams keep their order.
};

/// Between a worker and the coordinator.
struct SimControl {
  ConnectionId connection = 0;  ///< 0: there is no stream.
  Time connected_at;
  SimDirection to_coordinator;
  SimDirection from_coordinator;
  Time elsewhere_until;  ///< The coordinator's name leads to another one.
  Time late_until;       ///< All that is said takes longer.
  bool reconnecting = false;
  bool asks_another = false;  ///< What it says goes to another coordinator.
  std::optional<wire::Hello> another_hello = {};

  Time blocked_until() const {
    return std::max(
        {to_coordinator.blocked_until, from_coordinator.blocked_until, elsewhere_until});
  }
};

/// What becomes of the next plan that a worker is to lower.
enum class Lowering : uint8_t { kWorks, kFails, kDiffers };

/// Why no coordinator takes a worker.
enum class Strange : uint8_t { kNot, kVersion, kName, kDomain, kHost, kIncarnation };
inline constexpr int kStrangeKinds = static_cast<int>(Strange::kIncarnation) + 1;

/// Steps that are run.
struct SimRun {
  int64_t generation = 0;
  int64_t step = 0;  ///< In flight.
  bool voted = false;
  bool learned = false;
  bool stop = false;        ///< Asked for.
  bool group_stop = false;  ///< Decided by the vote that was learned.
  double noise = 1;         ///< Of the step in flight: by so much more its part takes.
  int64_t number = 0;
  Time began;
  std::vector<std::string> members;  ///< Keys, by rank.
  std::vector<std::string> holders;  ///< Of this worker's snapshots: keys.
  int rank = 0;
  int64_t group = 0;  ///< Of those that run the generation: in another era another one.
};

/// What comes to a worker from others' memory is changed on its way.
struct SimChanges {
  Time until;
  bool once = false;   ///< Only the first time.
  bool taken = false;  ///< It did not notice: Planted::kTrustMoves.
};

/// Whom a worker says that it waits for.
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

/// The state that a worker holds, and what it does with it.
struct SimTrainer {
  int64_t fence = 0;
  SimState held;
  int64_t held_generation = 0;
  SimState staged;
  int64_t staged_generation = 0;
  int64_t staged_step = 0;
  std::map<SnapshotKey, std::map<int32_t, SimState>> parts;  ///< Complete ones, by owner.
  std::optional<MoveState> moving;
  int64_t move_number = 0;
  int64_t moved_generation = 0;  ///< All that it needs of that one's state has come.
  int64_t progress = 0;
  SimWaits waits;
  /// It does nothing any more; the worker's heartbeats go on. It may say that it waits.
  bool stuck = false;
  std::optional<SimRun> run;
  Time last_applied;  ///< When it applied a step.
  Lowering lowering = Lowering::kWorks;
  bool fails = false;  ///< Whatever it does next, by its own fault.
  SimChanges changes;
  int64_t saved_step = -1;  ///< Whose save was begun last.
  /// The step whose complete gradients are kept after a failed run; 0: none.
  int64_t kept_vote = 0;
};

/// What is no other worker's doing.
inline Status OwnFault() {
  return InternalError("the device is gone");
}

/// What those that run the job have in common, since a coordinator with an empty store took it.
inline std::string SecretOf(int64_t era) {
  return "secret " + std::to_string(era);
}

struct SimWorker {
  SimWorker(std::string its_key, const SimClock& its_clock)
      : key(std::move(its_key)),
        clock(its_clock) {}

  const std::string key;  ///< Of this process; names may be used again by later ones.
  int64_t era = 0;        ///< Of the coordinator that welcomed it last.
  int64_t welcome = 0;    ///< Which one its last was, of all; 0: it had none yet.
  SimClock clock;
  std::unique_ptr<Member> member;
  std::string incarnation;
  std::string secret;  ///< Of the job that it applied: it connects only to who has the same.
  std::string host;
  int64_t pid = 0;
  bool alive = true;
  bool exited = false;
  bool noticed = false;      ///< It was told to end.
  int64_t notices = 0;       ///< How often, one by one.
  bool dies_soon = false;    ///< Its own doing.
  bool absurd = false;       ///< No plan can be made with its profile.
  uint64_t data = kJobData;  ///< Fingerprint of what it reads.
  Strange strange = Strange::kNot;
  std::optional<Time> stopped_until;           ///< SIGSTOP, or a pause of its machine.
  std::deque<std::function<void()>> deferred;  ///< What it would have done meanwhile.
  double slowdown = 1;                         ///< Of its work,
  double link_slowdown = 1;                    ///< and of what its links carry.
  bool held_up = false;                        ///< Others use its machine now,
  Time turn_ends;                              ///< and until then that stays as it is.
  std::optional<Time> tick_at;                 ///< The next one, as its clock shows it.
  std::optional<Time> cut_until;               ///< Neither control nor data gets through.
  SimControl control;
  SimTrainer trainer;

  bool runs() const { return alive && !exited; }
};

}  // namespace heddle::elastic
