/// \file
/// A simulated history's options, which decide it, and its result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/elastic/simulation/history/fault.h"

namespace heddle::elastic {

/// Faults that are planted in the simulation's shell of the machines; the checks must find them.
enum class Planted : uint8_t {
  kNothing,
  kSkipSettle,        ///< SettleStep does nothing.
  kIgnoreFence,       ///< AbortBelow does nothing.
  kForgetGeneration,  ///< The restarted coordinator reads a generation older than the workers know.
  kStalePart,         ///< A worker's shard of a snapshot is of the step before.
  kApplySkipped,      ///< SettleStep applies a step that the vote refused.
  kTrustDigests,      ///< A worker sends the digests of the state that it should hold.
  kTrustMoves,        ///< A worker does not compare the hashes of the state that it receives.
  kForgetLog,         ///< Log events are not yet durable when workers may forget their records.
  kTwoOwners,         ///< The store takes a former coordinator's writes, too.
};

/// All that decides a simulated history. Times are virtual.
struct SimOptions {
  uint64_t seed = 1;  ///< The seed of all that the other fields leave open: durations and luck.
  int workers = 4;
  int64_t steps = 40;
  int64_t step_ms = 20;  ///< The least time of a step's compute; the most is three times as long.
  std::vector<Fault> faults = {};
  /// Whether things beside the faults happen by chance: messages come twice, work hangs or takes
  /// long, votes break off, plans and snapshots are refused.
  bool luck = true;
  int hosts = 3;            ///< The number of hosts, on which the workers are by turns.
  int domains = 1;          ///< The number of the hosts' failure domains; 1: none is known.
  int64_t planner_ms = 80;  ///< The longest time that the planner usually takes.
  int64_t checkpoint_every = 10;
  int64_t validate_every = 6;
  int64_t digest_every = 0;     ///< Steps between comparisons of replicas; 0: none.
  int64_t replicate_every = 0;  ///< Steps between snapshots in memory; 0: none.
  int replica_copies = 1;
  /// Whether the coordinator knows the bytes and seconds of moves, so that a recovery may prefer an
  /// older state that is nearer. Otherwise it has to take the newest.
  bool tells_moves = false;
  /// The faults are only of the connections to the coordinator, once all workers train. Checked: no
  /// worker is given up, no step is run again, and training does not stop.
  bool control_faults_only = false;
  /// No worker is killed, and nothing fails by itself; workers that are told to end are started
  /// again. Checked: no step is run again.
  bool notices_only = false;
  int64_t refused_every = 0;     ///< The vote refuses every step divisible by this; 0: none.
  bool stop_on_refused = false;  ///< The job is to fail at the first refused step.
  /// The run of one machine: its launcher sees the workers end, and the job ends where another job
  /// would wait for workers.
  bool local = false;
  /// Whether the control plane's time limits are the product's; otherwise they are shorter.
  bool product_patience = false;
  /// Calls of the data plane wait longer than the control plane, which has to find the worker that
  /// hangs.
  bool patient_calls = false;
  /// The number of members in a replayed trace, from which workers come and go; nothing else fails.
  /// A step of this many members takes step_ms, one of fewer members longer in proportion; each
  /// worker has a host of its own. 0: the history is not a replay.
  int replayed = 0;
  /// Priced histories: a step takes as long as the plan in force and the workers' real speeds make
  /// it, and nothing else fails (coordinator/step_prices.h). The planner predicts this percentage
  /// of what it can know. 0: the history is not priced.
  int predicted_percent = 0;
  /// Percentage by which steps of a third of all sets of workers take longer, unknown to the
  /// planner.
  int misjudged_percent = 0;
  int unlike_percent = 0;  ///< Percentage by which every other worker is slower than its profile.
  int noise_percent = 0;   ///< The most that a worker's part of a step varies, as a percentage.
  /// Percentage by which each worker takes longer during turns of some seconds, in which others use
  /// its machine.
  int shared_percent = 0;
  bool observes = false;  ///< Drift is observed, and no plan is looked for.
  /// How many kinds of workers there are that compute unlike each other; workers that join are of
  /// these kinds by turns.
  int arithmetics = 1;
  bool unlike_begin = false;   ///< The first workers, too, are of all kinds; else all of one.
  bool demands_alike = false;  ///< The job demands the guarantee plan-invariant.
  Planted planted = Planted::kNothing;
  bool trace = false;   ///< Prints all messages.
  bool record = false;  ///< Fills SimResult::moments and digest.

  /// Whether no worker and no vote fails by itself.
  bool calm() const { return control_faults_only || notices_only || replayed > 0 || priced(); }
  bool priced() const { return predicted_percent > 0; }
  friend bool operator==(const SimOptions&, const SimOptions&) = default;
};

/// The most workers of a small cluster and of a large one. Most histories are of small clusters;
/// those of large ones are short.
inline constexpr int kMaxOfSmallCluster = 8;
inline constexpr int kMaxOfLargeCluster = 64;

/// The history that a seed stands for, of all kinds of faults.
SimOptions DrawHistory(uint64_t seed);
/// The history that a seed stands for among those with SimOptions::control_faults_only.
SimOptions DrawControlHistory(uint64_t seed);
/// The history that a seed stands for among those with SimOptions::notices_only.
SimOptions DrawNoticeHistory(uint64_t seed);

/// The history that a seed stands for among those with SimOptions::priced: workers come, become
/// slower and quicker, and one may leave.
SimOptions DrawPricedHistory(uint64_t seed);

/// The history that a seed stands for among those whose workers compute unlike each other; half of
/// the jobs demand that they do not.
SimOptions DrawUnlikeHistory(uint64_t seed);

/// A history in one line, without spaces: "seed=7,workers=3,steps=30,kill=1.250/0/12,…". It has
/// only the fields that differ from the defaults, and never replayed, planted, trace and record.
std::string TextOf(const SimOptions& history);
/// The history that TextOf wrote as `text`. Errors: kInvalidArgument for any other text.
Result<SimOptions> HistoryFromText(const std::string& text);

/// Something that happened, for people.
struct SimMoment {
  double seconds = 0;
  std::string what;
};

/// The outcome of a simulated history.
struct SimResult {
  std::string error;  ///< Empty: all invariants held and the job finished.
  /// The injected faults, and the coordinator's log events except steps.
  std::vector<SimMoment> moments;
  double seconds = 0;                 ///< The history's virtual seconds.
  double longest_wait = 0;            ///< Virtual seconds from the last fault to the next step.
  std::map<std::string, int> probes;  ///< How often each event of interest happened, by its name.
  uint64_t digest = 0;                ///< A hash of all the coordinator's decisions, in order.
  int64_t planned_step = 0;           ///< Priced histories: the last step before the newest plan.
  /// Priced histories: the seconds of the last step but one, without noise, over those under the
  /// best plan for the workers' true speeds.
  double over_best = 0;
  /// Priced histories: the most by which a slowdown that the last plan counts on differs from the
  /// true one, as a factor.
  double worst_estimate = 0;
  /// Priced histories: the most steps from a fault until a worker was noticed that became several
  /// times as slow, or as quick; 0: none was.
  int64_t noticed_steps = 0;
};

}  // namespace heddle::elastic
