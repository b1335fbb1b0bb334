/// \file
/// The coordinator's durable state: a few KB that a restarted coordinator continues from. A
/// generation number is durable before any worker learns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/admission.h"
#include "elastic/control/planning.h"
#include "elastic/control/provenance.h"

namespace heddle::elastic {

/// What a restarted coordinator knows of a worker.
struct DurableWorker {
  std::string incarnation;
  std::string host;
  std::string profile_json;
  std::string failure_domain;
  std::string leaves = {};  ///< Why the worker leaves; empty: it does not.
  bool noticed = false;     ///< The worker leaves, and its process ends whatever is decided.
  int64_t notice = 0;       ///< The newest termination notice that it reported.
  int64_t withdrawn = 0;    ///< The newest notice that was withdrawn.
  Arithmetic arithmetic = {};
  friend bool operator==(const DurableWorker&, const DurableWorker&) = default;
};

/// A worker that was released. If it comes back, the release is sent to it again.
struct DurableRelease {
  std::string incarnation;
  std::string reason;
  bool requeue = false;  ///< The job waits for workers, this one or others.
  friend bool operator==(const DurableRelease&, const DurableRelease&) = default;
};

/// The generation whose state the workers hold.
struct DurableGeneration {
  int64_t number = 0;
  PlanOutcome plan;
  std::map<std::string, std::string> members;  ///< Incarnations by member name.
};

/// A generation whose snapshots workers may hold in memory.
struct SnapshotSource {
  std::string plan_json;        ///< Defines the shards.
  std::vector<int32_t> owners;  ///< Ranks that hold parameters and so own a shard each; ascending.
  /// Snapshots of later steps are void: the job went back, or one of them could not be read.
  int64_t last_step = INT64_MAX;
  friend bool operator==(const SnapshotSource&, const SnapshotSource&) = default;
};

/// One worker's copy of a state that was found to be wrong.
struct RefusedState {
  static constexpr int64_t kTensors = -1;
  std::string holder;
  int64_t generation = 0;   ///< The generation that the state belongs to.
  int64_t step = kTensors;  ///< The snapshot's step; kTensors: the tensors of the generation.
  /// The worker that found it in this recovery; empty: an earlier recovery or a comparison did.
  std::string receiver = {};
  friend bool operator==(const RefusedState&, const RefusedState&) = default;
};

/// Steps in a row whose states have one provenance: those after `after_step`, up to the next
/// stretch.
struct DurableStretch {
  int64_t after_step = 0;
  Provenance provenance;
  friend bool operator==(const DurableStretch&, const DurableStretch&) = default;
};

/// All of the coordinator's durable state.
struct DurableState {
  std::string job_id;
  std::string job_yaml;
  std::string secret;
  std::string output_folder;
  uint64_t data = 0;               ///< Fingerprint of the data, as in Job.
  int64_t generation_counter = 0;  ///< The highest generation number ever given out.
  std::optional<DurableGeneration> held;
  std::map<int64_t, SnapshotSource> snapshots;  ///< By generation, the newest few.
  /// Where the bits of the state come from, ascending by step; empty: no generation has begun.
  std::vector<DurableStretch> lineage;
  /// The last step after which all replicas of the state were compared and are equal.
  int64_t agreed_step = 0;
  std::vector<RefusedState> refused;  ///< Copies that no generation may continue from.
  std::map<std::string, DurableWorker> workers;
  std::vector<DurableRelease> releases;  ///< The newest releases, the oldest first.
  int64_t known_step = 0;            ///< Last step whose record was logged (may lag by one save).
  std::vector<int64_t> checkpoints;  ///< Committed steps, ascending.
  /// Steps of checkpoints on storage that belong to a history that was given up, ascending.
  std::vector<int64_t> given_up_checkpoints;
  int64_t restarts = 0;            ///< How many coordinators of the job came before this one.
  int64_t next_worker_number = 1;  ///< For names of new workers, so that none is used twice.
  bool finished = false;
  std::string failed;  ///< Why the job failed; empty: it did not.
  /// Added by the shell: it outlives jobs, and the state machine of a job does not know it.
  Admission admission;
};

}  // namespace heddle::elastic
