/// \file
/// What the control plane needs to know of a job: when it starts, how long each wait may last, when
/// a checkpoint is due. The rest of the job file is opaque text here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/provenance.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// The longest interval between heartbeats, however long the lease is: they carry the windows that
/// drift is measured by.
inline constexpr Duration kLongestHeartbeat = std::chrono::milliseconds(200);
/// A worker that sends nothing for longer than this has a gap: its progress meanwhile could not be
/// heard.
inline constexpr Duration kGap = 5 * kLongestHeartbeat;

enum class DriftAction : uint8_t {
  kObserve,  ///< Drift is logged.
  kAdvise,   ///< Drift is logged, and so is what the best plan for it would save.
  kAct,      ///< The best plan for it is put in force if it pays.
};

/// When a lasting change of a worker's speed, or of links, is worth a new plan.
struct DriftPolicy {
  DriftAction action = DriftAction::kAct;
  /// The ratio of measured to predicted busy time, or its inverse, that counts as drift. For links:
  /// the ratio of the seconds of a step to those of the generation's first steps, or its inverse,
  /// that counts as a suspicion.
  double threshold = 1.2;
  double link_factor = 2;  ///< The ratio of a link's measured to planned rate that counts as drift.
  int windows = 5;         ///< How many of the newest windows are looked at.
  int windows_over = 4;    ///< How many of these must be beyond the threshold, on the same side.
  /// A worker's change that is within the square of the threshold must also last for this many
  /// windows, each beyond the square root of the threshold. A change beyond the fourth power is
  /// noticed in quick windows: all of the newest `windows`, or `windows_over` - 1 of them if the
  /// worker became quicker.
  int windows_lasting = 9;
  /// The first windows of a generation, which do not count: caches and clocks settle.
  int windows_excluded = 1;
  /// Least ratio of the predicted seconds that a change saves to those that it costs.
  double gain_over_cost = 1.5;
  /// Least time between two changes for drift, or between two great ones (drift/drift.h). A change
  /// within ten times the last pause doubles it.
  Duration cooldown = std::chrono::seconds(5);
  Duration longest_cooldown = std::chrono::minutes(5);  ///< The longest pause after doubling.
};

/// How links are measured: by pair of places. A place is the workers of one host at one address
/// with one emulated rate. A host takes part in one measurement at a time: the measurements of a
/// round are disjoint pairs, and their number is at most half that of the hosts.
///
/// A place with two workers is measured with itself. Every place is measured with other places, the
/// nearest in the order of places first, until it has `partners` of them. Up to partners + 1 places
/// all pairs are measured; larger clusters take at most places × (partners + 1) measurements in
/// about 2 × partners rounds of a tenth of a second. For a pair that is not measured, a plan counts
/// on the figures of the links in the two workers' own profiles.
struct LinkPolicy {
  std::vector<std::string> transports;  ///< To be measured, best first; empty: none is measured.
  int partners = 16;                    ///< Other places that a place is measured with.
  Duration timeout = std::chrono::seconds(5);  ///< The longest time for one measurement.
  Duration wait = std::chrono::seconds(30);    ///< How long a plan waits for all measurements.
};

/// How long a worker that joins and is lost again and again is held off.
struct QuarantinePolicy {
  Duration short_life = std::chrono::seconds(30);  ///< A worker lost sooner had a short life.
  Duration first = std::chrono::seconds(9);    ///< After two short lives in a row; then doubles.
  Duration longest = std::chrono::minutes(5);  ///< The longest time after doubling.
};

/// Where the state of a job can come from.
enum class Source : uint8_t {
  kInitial,     ///< A function of the seed.
  kCheckpoint,  ///< A checkpoint on storage.
  kReplicas,    ///< A snapshot in workers' memory.
  kLive,        ///< The tensors of the workers that hold the generation before.
};

/// How a recovery chooses the source of the state: by the predicted seconds for the steps to be run
/// again and for the bytes to be moved. A rate is that of all workers together, and is used until a
/// move of the job from that source has been measured.
struct RecoveryPolicy {
  /// The source that is taken if it has the state, even where another one is quicker.
  std::optional<Source> prefer = {};
  double live_bytes_per_second = 1e9;       ///< From survivors' tensors.
  double replica_bytes_per_second = 0.5e9;  ///< From snapshots in memory, which are unpacked first.
  double storage_bytes_per_second = 0.2e9;  ///< From a checkpoint.
};

/// The settings of a job that the control plane obeys.
struct JobPolicy {
  int initial_workers = 1;  ///< Workers that formation waits for.
  int min_workers = 1;      ///< Workers that are enough after formation_timeout, and to recover.
  Duration formation_timeout = std::chrono::seconds(30);
  int64_t total_steps = 0;
  int64_t checkpoint_every = 0;  ///< Steps between checkpoints; 0: none but the final one.
  bool final_checkpoint = true;
  int64_t replicate_every = 0;  ///< Steps between snapshots kept in memory; 0: none.
  int replica_copies = 1;       ///< Workers that hold a replica of another worker's shard.
  int64_t digest_every = 0;    ///< Steps between comparisons of the replicas of the state; 0: none.
  int64_t validate_every = 0;  ///< Steps between validations; 0: none but the final one.
  bool final_validation = false;
  /// True: the job fails after a step whose loss or gradient norm is NaN or infinite. False: the
  /// step counts, and the workers skip its update.
  bool stop_on_non_finite = true;
  int64_t threads = 1;             ///< Compute threads of each worker.
  bool exact_sums = true;          ///< The order of all sums is independent of the plan.
  bool checkpoints_round = false;  ///< A checkpoint's moments are not those that were saved.
  /// The least guarantee that the job may have; kNone: it demands none.
  Guarantee demanded = Guarantee::kNone;
  DriftPolicy drift;
  LinkPolicy links;
  RecoveryPolicy recovery;
  QuarantinePolicy quarantine;

  // The lease and what follows from it (limits.h). The defaults are those for a lease of 3 seconds.
  Duration heartbeat = kLongestHeartbeat;
  /// A worker that sends nothing for this long is lost, unless the steps of its generation show
  /// that it lives, or no worker at all is heard (membership/failure_detector.h).
  Duration lease = std::chrono::seconds(3);
  /// A worker that is kept beyond its lease is lost after this long.
  Duration cut_off_timeout = std::chrono::minutes(10);
  /// Within this time at most half of all workers are given up for silence alone; further ones are
  /// held for as long (membership/loss_limit.h).
  Duration mass_silence = std::chrono::seconds(30);
  /// How long a worker whose connection broke may take to reconnect.
  Duration reconnect_grace = std::chrono::milliseconds(300);
  /// How long further losses or notices are waited for after one.
  Duration coalesce = std::chrono::milliseconds(150);
  /// How long after an accusation it is judged; the accused worker may still be heard until then.
  Duration probe = std::chrono::milliseconds(500);

  // Reply deadlines: how long a worker may make no progress. Progress in its heartbeats extends
  // them.
  Duration reply_timeout = std::chrono::seconds(20);  ///< For Prepared and Halted.
  /// For Stopped: a step and what is due after it.
  Duration stop_timeout = std::chrono::seconds(120);
  Duration move_timeout = std::chrono::seconds(60);     ///< For Ready: connecting and moving state.
  Duration profile_timeout = std::chrono::seconds(60);  ///< For Profiled.

  /// How long a member that others wait for in a step may do nothing; ten steps, if that is longer.
  Duration hang_timeout = std::chrono::seconds(15);
  /// How long a plan is waited for before the job counts as paused; one that comes later is taken.
  Duration plan_timeout = std::chrono::seconds(120);
  /// The first wait before a plan that was refused is requested again; it doubles every time.
  Duration first_retry = std::chrono::seconds(2);
  Duration last_retry = std::chrono::minutes(1);  ///< The longest of these waits.
  /// After the coordinator's restart workers have this long beyond the lease to come back.
  Duration adopt_extra = std::chrono::seconds(2);
  /// How long a halted worker waits for a coordinator.
  Duration coordinator_wait = std::chrono::minutes(10);
  /// How long saving the state may take from the moment that all workers leave.
  Duration notice = std::chrono::minutes(2);
  bool ends_suspended = false;  ///< The job ends when it is suspended (`train`).
  /// How long the job waits for workers when it has too few; 0: for ever (`serve`).
  Duration paused_timeout = std::chrono::seconds(0);
  /// The job fails after this many recoveries in a row without a completed step.
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
  std::map<std::string, wire::Emulation> emulation;  ///< Emulated limits by worker name.
  /// Failure domains of workers that report none, by worker name.
  std::map<std::string, std::string> failure_domains;
  /// Devices of workers that were told none, by worker name; "": that of all others.
  std::map<std::string, std::string> devices;
  /// The highest generation known at checkpoint_root; this run's generations are numbered above it.
  int64_t used_generation = 0;
  std::vector<int64_t> checkpoints;  ///< Steps of the sound checkpoints on storage, ascending.
  /// Fingerprint of the job's data: from the checkpoint that it continues from, or else from the
  /// first worker that has opened them; 0: not known yet.
  uint64_t data = 0;
  /// The provenance of the newest checkpoint; nullopt: the job begins from its initial state.
  std::optional<Provenance> provenance = {};

  /// True if a worker that leaves its device to the job computes on the processor.
  bool OnProcessor(const std::string& worker) const;
};

/// True if a checkpoint of the state after `step` is due. Pure, so all workers decide alike.
bool CheckpointDue(const JobPolicy& policy, int64_t step);
/// True if members report the digests of the state after `step`. Where digests are compared at all
/// they are also due with each checkpoint, so that only a compared state is saved.
bool DigestsDue(const JobPolicy& policy, int64_t step);
/// True if the validation loss after `step` is due.
bool ValidationDue(const JobPolicy& policy, int64_t step);

}  // namespace heddle::elastic
