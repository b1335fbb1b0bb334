/// \file
/// The coordinator's durable facts: a few KB that a restarted coordinator goes on from. A
/// generation number is durable before any worker learns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/planning.h"

namespace heddle::elastic {

struct DurableWorker {
  std::string incarnation;
  std::string host;
  std::string profile_json;
  std::string failure_domain;
  friend bool operator==(const DurableWorker&, const DurableWorker&) = default;
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

struct DurableState {
  std::string job_id;
  std::string job_yaml;
  std::string secret;
  std::string output_folder;
  int64_t generation_counter = 0;  ///< Highest number ever given out.
  std::optional<DurableGeneration> held;
  std::map<int64_t, SnapshotSource> snapshots;  ///< By generation, the newest few.
  std::map<std::string, DurableWorker> workers;
  int64_t known_step = 0;            ///< Last step whose record was logged (may lag by one save).
  std::vector<int64_t> checkpoints;  ///< Committed steps, ascending.
  /// Steps of checkpoints that are on storage and of a history that was given up, ascending.
  std::vector<int64_t> given_up_checkpoints;
  int64_t life = 0;                ///< Of the coordinator that wrote this, counted from 0.
  int64_t next_worker_number = 1;  ///< For names: a given-up worker's is not used again.
  bool finished = false;
  std::string failed;  ///< Why the job failed; empty: it did not.
};

}  // namespace heddle::elastic
