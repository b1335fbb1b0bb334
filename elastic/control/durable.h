/// \file
/// The coordinator's durable facts: a few KB that a restarted coordinator goes on from. A
/// generation number is durable before any worker learns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/admission.h"
#include "elastic/control/planning.h"

namespace heddle::elastic {

struct DurableWorker {
  std::string incarnation;
  std::string host;
  std::string profile_json;
  std::string failure_domain;
  std::string leaves = {};  ///< Why it was asked to; empty: it was not.
  bool noticed = false;     ///< It leaves, and its process ends whatever is decided.
  int64_t notice = 0;       ///< The newest one that it told of …
  int64_t withdrawn = 0;    ///< … and the newest one that was withdrawn.
  friend bool operator==(const DurableWorker&, const DurableWorker&) = default;
};

/// A worker that was told that it may go, or is to be told: so is it again when it comes back.
struct DurableRelease {
  std::string incarnation;
  std::string reason;
  bool requeue = false;  ///< The job waits for workers.
  friend bool operator==(const DurableRelease&, const DurableRelease&) = default;
};

/// The generation whose state the workers hold.
struct DurableGeneration {
  int64_t number = 0;
  PlanOutcome plan;
  std::map<std::string, std::string> members;  ///< Name to incarnation.
};

/// A generation of which workers may keep snapshots in memory.
struct SnapshotSource {
  std::string plan_json;        ///< Says what each part is.
  std::vector<int32_t> owners;  ///< Ranks that hold parameters, each a part; ascending.
  /// Its snapshots of later steps are void: the job went back, or one was found unreadable.
  int64_t last_step = INT64_MAX;
  friend bool operator==(const SnapshotSource&, const SnapshotSource&) = default;
};

/// One worker's copy of a state, which another worker found to be other than it should be.
struct RefusedState {
  static constexpr int64_t kTensors = -1;
  std::string holder;
  int64_t generation = 0;     ///< Whose state it is.
  int64_t step = kTensors;    ///< Of the snapshot; kTensors: what the holder trains on.
  std::string receiver = {};  ///< Who found it, in this recovery; empty: it is no longer asked.
  friend bool operator==(const RefusedState&, const RefusedState&) = default;
};

struct DurableState {
  std::string job_id;
  std::string job_yaml;
  std::string secret;
  std::string output_folder;
  uint64_t data = 0;               ///< As in Job.
  int64_t generation_counter = 0;  ///< Highest number ever given out.
  std::optional<DurableGeneration> held;
  std::map<int64_t, SnapshotSource> snapshots;  ///< By generation, the newest few.
  /// All replicas of the state after this step were the same; nothing is known of later ones.
  int64_t agreed_step = 0;
  std::vector<RefusedState> refused;  ///< What no generation is to go on from.
  std::map<std::string, DurableWorker> workers;
  std::vector<DurableRelease> releases;  ///< The newest ones, in order.
  int64_t known_step = 0;            ///< Last step whose record was logged (may lag by one save).
  std::vector<int64_t> checkpoints;  ///< Committed steps, ascending.
  /// Steps of checkpoints that are on storage and of a history that was given up, ascending.
  std::vector<int64_t> given_up_checkpoints;
  int64_t life = 0;                ///< Of the coordinator that wrote this, counted from 0.
  int64_t next_worker_number = 1;  ///< For names: a given-up worker's is not used again.
  bool finished = false;
  std::string failed;  ///< Why the job failed; empty: it did not.
  /// Not of the job: it outlives jobs, and the machine of none knows it. The shell adds it.
  Admission admission;
};

}  // namespace heddle::elastic
