/// \file
/// What decides a simulated history, and what comes of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/elastic/simulation/history/fault.h"

namespace heddle::elastic {

/// Faults of the shell that the checks must find.
enum class Planted : uint8_t {
  kNothing,
  kSkipSettle,        ///< SettleStep does nothing.
  kIgnoreFence,       ///< AbortBelow does nothing.
  kForgetGeneration,  ///< The restarted coordinator reads a counter that is older than what workers
                      ///< learnt.
  kStalePart,         ///< A worker's shard of a snapshot is of the step before.
  kApplySkipped,      ///< SettleStep applies a step that the vote refused.
  kTrustDigests,      ///< A worker tells digests of what it should hold.
  kTrustMoves,        ///< A worker does not compare the hashes of what comes to it.
  kForgetLog,         ///< What was logged is not durable before workers may forget it.
  kTwoOwners,         ///< The store takes what a former coordinator writes, too.
};

struct SimOptions {
  uint64_t seed = 1;  ///< Of all that is not said below: how long things take, and luck.
  int workers = 4;
  int64_t steps = 40;
  int64_t step_ms = 20;  ///< The least time of a step's compute; at most three times as much.
  std::vector<Fault> faults = {};
  /// Beside the faults: messages come twice, work hangs or takes long, votes break off, plans and
  /// snapshots are refused, now and then.
  bool luck = true;
  int hosts = 3;            ///< Workers are on these by turns,
  int domains = 1;          ///< which are in these failure domains; 1: none is known.
  int64_t planner_ms = 80;  ///< The planner takes so long at most, mostly.
  int64_t checkpoint_every = 10;
  int64_t validate_every = 6;
  int64_t digest_every = 0;     ///< Steps between comparisons of replicas; 0: none.
  int64_t replicate_every = 0;  ///< Steps between snapshots in memory; 0: none.
  int replica_copies = 1;
  /// Bytes and seconds of moves are told, so that a recovery may prefer an older state that is
  /// nearer. Otherwise the newest is to be taken.
  bool tells_moves = false;
  /// Faults are of the ways to the coordinator alone, once all workers train: none of them is given
  /// up, no step is run again, and training does not stop.
  bool control_faults_only = false;
  /// Nobody is killed, and nothing fails by itself; whoever is told to end is started again: no
  /// step is run again.
  bool notices_only = false;
  int64_t refused_every = 0;     ///< The vote refuses each so-many-th step; 0: none.
  bool stop_on_refused = false;  ///< The job is to fail at the first such step.
  /// As one machine's run: who started the workers sees them end, and the job ends where another
  /// one would wait for workers.
  bool local = false;
  /// The control plane's patience is the product's; otherwise shorter.
  bool product_patience = false;
  /// Calls of the data plane wait longer than the control plane, which has to find who hangs.
  bool patient_calls = false;
  /// Others say who comes and goes, and nothing else fails: step_ms is with so many members,
  /// evenly, and fewer take longer in proportion; each worker has a host of its own. 0: as above.
  int replayed = 0;
  /// Steps take what the plan in force makes of the workers' real speeds, and nothing else fails
  /// (coordinator/step_prices.h). The planner says so many percent of what it can know. 0: as
  /// above.
  int predicted_percent = 0;
  int misjudged_percent = 0;  ///< Steps of a third of all sets of workers take so much longer: no
                              ///< one knows.
  int unlike_percent = 0;     ///< Every other worker takes so much longer than by its profile.
  int noise_percent = 0;      ///< Each part of a step takes so much more or less, at most.
  int shared_percent = 0;  ///< Others use the machines: by turns of some seconds each worker takes
                           ///< so much longer.
  Planted planted = Planted::kNothing;
  bool trace = false;   ///< Prints all messages.
  bool record = false;  ///< SimResult::moments and digest.

  /// No worker and no vote fails by itself.
  bool calm() const { return control_faults_only || notices_only || replayed > 0 || priced(); }
  bool priced() const { return predicted_percent > 0; }
  friend bool operator==(const SimOptions&, const SimOptions&) = default;
};

/// Most histories are of small clusters; some of large ones, which are short.
inline constexpr int kMostOfSmallCluster = 8;
inline constexpr int kMostOfLargeCluster = 64;

/// The history that a seed stands for, of all kinds of faults.
SimOptions DrawHistory(uint64_t seed);
/// Likewise, with SimOptions::control_faults_only.
SimOptions DrawControlHistory(uint64_t seed);
/// Likewise, with SimOptions::notices_only.
SimOptions DrawNoticeHistory(uint64_t seed);

/// Likewise, with SimOptions::priced: workers come, become slower and quicker, and one may go.
SimOptions DrawPricedHistory(uint64_t seed);

/// A history in one line, without spaces: "seed=7,workers=3,steps=30,kill=1.250/0/12,…". Only what
/// differs from the defaults is said; neither replayed and planted, nor trace and record.
std::string TextOf(const SimOptions& history);
/// Errors: kInvalidArgument.
Result<SimOptions> HistoryFromText(const std::string& text);

/// Something that happened, for people.
struct SimMoment {
  double seconds = 0;
  std::string what;
};

struct SimResult {
  std::string error;  ///< Empty: all invariants held and the job finished.
  /// What was injected, and what the coordinator noted beside steps.
  std::vector<SimMoment> moments;
  double seconds = 0;                 ///< Virtual.
  double longest_wait = 0;            ///< For the first step after the last fault.
  std::map<std::string, int> probes;  ///< How often the interesting things happened.
  uint64_t digest = 0;                ///< Of all that the coordinator decided, in order.
  int64_t planned_step = 0;           ///< Priced: the last one before the newest plan.
  /// Priced: most steps from a fault until a worker was noticed that became several times as slow,
  /// or as quick; 0: none was.
  int64_t noticed_steps = 0;
};

}  // namespace heddle::elastic
