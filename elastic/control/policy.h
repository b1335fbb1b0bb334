/// \file
/// What the control plane needs to know of a job: when to start, how long to wait for what, when a
/// checkpoint is due. The rest of the job file is opaque text here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// Drift is heard of by windows that heartbeats carry: those of a long lease come as often.
inline constexpr Duration kLongestHeartbeat = std::chrono::milliseconds(200);
/// Between two words of a worker no more passes than a few heartbeats; what is longer is a gap, in
/// which what it did could not be heard.
inline constexpr Duration kGap = 5 * kLongestHeartbeat;

enum class DriftAction : uint8_t {
  kObserve,  ///< Drift is logged.
  kAdvise,   ///< A plan is looked for, too, and what it would save is logged.
  kAct,      ///< It is put in force where it pays.
};

/// When a lasting change of speed, or of links, is worth a new plan.
struct DriftPolicy {
  DriftAction action = DriftAction::kAct;
  double threshold =
      1.2;  ///< Measured over predicted busy time, or its inverse, that counts as drift; of the
            ///< seconds of a step over those of the generation's first ones, as a suspicion.
  double link_factor = 2;  ///< Measured over planned rate of a link, or its inverse, that counts.
  int windows = 5;         ///< Of the last `windows` …
  int windows_over = 4;    ///< … so many beyond the threshold, to one side.
  /// A worker's change that is not beyond the square of the threshold lasts for so many, too, none
  /// of which is within its square root. One beyond the fourth power is noticed in quick windows,
  /// `windows_over` of the last `windows` of them; one less if the worker became quicker.
  int windows_lasting = 9;
  int windows_excluded =
      1;  ///< The first ones of a generation do not count: caches and clocks settle.
  double gain_over_cost = 1.5;  ///< Predicted seconds saved over those spent by the change.
  /// Least time between two changes for drift; doubled by each that follows within ten of it.
  Duration cooldown = std::chrono::seconds(5);
  Duration longest_cooldown = std::chrono::minutes(5);
};

/// How links are measured: by pair of places, a place being the workers of one host at one address
/// with one emulated rate. A host takes part in one measurement at a time, so that those of a round
/// are disjoint pairs and no more than half the hosts' number run at once. A place is measured with
/// itself, where it has two workers, and with every other one until it has `partners` of them, near
/// ones in the order of places first: so up to partners + 1 places all pairs are measured, and in
/// larger clusters at most places × (partners + 1), in about 2 × partners rounds of a tenth of a
/// second. What is not measured is planned with by its workers' own ends.
struct LinkPolicy {
  std::vector<std::string> transports;  ///< To measure, best first; empty: nothing is measured.
  int partners = 16;
  Duration timeout = std::chrono::seconds(5);  ///< Of one measurement.
  Duration wait = std::chrono::seconds(30);    ///< So long at most a plan waits for all of them.
};

/// How long a worker is held off that comes and is lost again and again.
struct QuarantinePolicy {
  Duration short_life = std::chrono::seconds(30);  ///< Lost sooner after it came: a short life.
  Duration first = std::chrono::seconds(9);  ///< After the second one in a row; doubled by each …
  Duration longest = std::chrono::minutes(5);  ///< … up to this.
};

/// Where the state of a job can be.
enum class Source : uint8_t {
  kInitial,     ///< A function of the seed.
  kCheckpoint,  ///< On storage.
  kReplicas,    ///< A snapshot in workers' memory.
  kLive,        ///< The tensors of those that hold the generation before.
};

/// Where a recovery takes the state from is decided by predicted seconds: steps to be run again,
/// and bytes to be moved at these rates, of all workers together, until a move of the job has shown
/// what its own machines do.
struct RecoveryPolicy {
  /// Taken where it has the state, also when another one is quicker.
  std::optional<Source> prefer = {};
  double live_bytes_per_second = 1e9;       ///< From survivors' tensors.
  double replica_bytes_per_second = 0.5e9;  ///< From snapshots in memory, which are unpacked first.
  double storage_bytes_per_second = 0.2e9;  ///< From a checkpoint.
};

struct JobPolicy {
  int initial_workers = 1;  ///< Formation waits for so many …
  int min_workers = 1;      ///< … or, after formation_timeout, for so many. Fewer: the job waits.
  Duration formation_timeout = std::chrono::seconds(30);
  int64_t total_steps = 0;
  int64_t checkpoint_every = 0;  ///< Steps; 0: none but the final one.
  bool final_checkpoint = true;
  int64_t replicate_every = 0;  ///< Steps between snapshots kept in memory; 0: none.
  int replica_copies = 1;       ///< Workers that keep a worker's part beside itself.
  int64_t digest_every = 0;    ///< Steps between comparisons of the replicas of the state; 0: none.
  int64_t validate_every = 0;  ///< Steps; 0: never but at the end when final_validation.
  bool final_validation = false;
  /// The job fails after a step whose loss or gradient norm is NaN or infinite. Otherwise the step
  /// counts, and the workers leave its update out.
  bool stop_on_non_finite = true;
  DriftPolicy drift;
  LinkPolicy links;
  RecoveryPolicy recovery;
  QuarantinePolicy quarantine;

  // What follows from the lease (limits.h), as it is with that of 3 seconds.
  Duration heartbeat = kLongestHeartbeat;
  /// A worker that says nothing for so long is lost, unless the steps of its generation show that
  /// it lives, or nobody at all is heard (membership/silence.h) …
  Duration lease = std::chrono::seconds(3);
  Duration cut_off_timeout = std::chrono::minutes(10);  ///< … and then it is after so long.
  /// Within it no more than half of all workers are given up for silence alone; further ones are
  /// held for so long (membership/loss_limit.h).
  Duration mass_silence = std::chrono::seconds(30);
  Duration reconnect_grace = std::chrono::milliseconds(300);  ///< After its stream broke.
  Duration coalesce = std::chrono::milliseconds(150);  ///< After a loss or notice: wait for more.
  Duration probe =
      std::chrono::milliseconds(500);  ///< After an accusation: does the accused still answer?
  /// How long a worker that is asked for something may stand still; while its heartbeats tell of
  /// progress it is waited for.
  Duration reply_timeout = std::chrono::seconds(20);  ///< Prepared, Halted.
  Duration stop_timeout = std::chrono::seconds(120);  ///< Stopped: a step and what is due after it.
  Duration move_timeout = std::chrono::seconds(60);   ///< Ready: connecting and moving state.
  Duration profile_timeout = std::chrono::seconds(60);
  /// A member that others wait for in a step may do nothing for so long, or for as long as ten
  /// steps take.
  Duration hang_timeout = std::chrono::seconds(15);
  Duration plan_timeout = std::chrono::seconds(120);  ///< Until it is not waited for, but taken.
  Duration first_retry =
      std::chrono::seconds(2);  ///< Between questions for a plan that was refused: doubled …
  Duration last_retry = std::chrono::minutes(1);  ///< … up to this.
  Duration adopt_extra =
      std::chrono::seconds(2);  ///< Beyond the lease, after a coordinator's restart.
  Duration coordinator_wait =
      std::chrono::minutes(10);  ///< A halted worker waits so long for a coordinator.
  /// From the moment that all workers leave: their state is saved by then, or not at all.
  Duration notice = std::chrono::minutes(2);
  bool ends_suspended = false;  ///< The job ends when it is suspended (`train`).
  /// How long the job waits for workers when it has too few; 0: for ever (`serve`).
  Duration paused_timeout = std::chrono::seconds(0);
  /// So many recoveries in a row without a completed step fail the job.
  int max_recoveries_without_step = 8;
};

/// A submitted job.
struct Job {
  std::string id;      ///< Hash of the effective job file.
  std::string yaml;    ///< The effective job file, with absolute paths.
  std::string secret;  ///< Key of the data plane's handshake; drawn at submission, never logged.
  std::string output_folder;
  std::string checkpoint_root;  ///< Path or URL (checkpoint/storage/storage.h).
  JobPolicy policy;
  std::map<std::string, wire::Emulation> emulation;    ///< By worker name.
  std::map<std::string, std::string> failure_domains;  ///< Likewise, of those that say none.
  /// The highest generation that its checkpoints' place knows; those of this run are above it.
  int64_t used_generation = 0;
  std::vector<int64_t> checkpoints;  ///< Sound committed ones found on storage: steps, ascending.
  /// Fingerprint of its data, as a checkpoint that it goes on from has it, or else the first worker
  /// that has opened them; 0: neither has said so far.
  uint64_t data = 0;
};

/// Whether a checkpoint of the state after `step` is due: a pure function, the same on every
/// worker.
bool CheckpointDue(const JobPolicy& policy, int64_t step);
/// Whether members tell the digests of the state after `step`: also where it is saved, so that a
/// checkpoint is of a state that was compared.
bool DigestsDue(const JobPolicy& policy, int64_t step);
/// Likewise for the validation loss.
bool ValidationDue(const JobPolicy& policy, int64_t step);

}  // namespace heddle::elastic
