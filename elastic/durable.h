/// \file
/// The coordinator's durable facts: a few KB that a restarted coordinator goes on from. A
/// generation number is durable before any worker learns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/planning.h"

namespace heddle::elastic {

struct DurableWorker {
  std::string incarnation;
  std::string host;
  std::string profile_json;
  friend bool operator==(const DurableWorker&, const DurableWorker&) = default;
};

/// The generation whose state the workers hold.
struct DurableGeneration {
  int64_t number = 0;
  PlanOutcome plan;
  std::map<std::string, std::string> members;  ///< Name to incarnation.
};

struct DurableState {
  std::string job_id;
  std::string job_yaml;
  std::string secret;
  std::string output_folder;
  int64_t generation_counter = 0;  ///< Highest number ever given out.
  std::optional<DurableGeneration> held;
  std::map<std::string, DurableWorker> workers;
  int64_t known_step = 0;            ///< Last step whose record was logged (may lag by one save).
  std::vector<int64_t> checkpoints;  ///< Committed steps, ascending.
  int64_t life = 0;                  ///< Of the coordinator that wrote this, counted from 0.
  int64_t next_worker_number = 1;    ///< For names: a given-up worker's is not used again.
  bool finished = false;
  std::string failed;  ///< Why the job failed; empty: it did not.
};

}  // namespace heddle::elastic
