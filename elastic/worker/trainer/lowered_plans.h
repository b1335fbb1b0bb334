/// \file
/// The plans that this worker has been told to prepare for, lowered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "engine/program/profile.h"

namespace heddle::elastic {

/// Thread: any.
class LoweredPlans {
 public:
  explicit LoweredPlans(const JobContext& context) : context_(context) {}

  /// Busy time of plans that are lowered from now on is predicted by it.
  void SetProfile(const program::WorkerProfile& profile) HEDDLE_EXCLUDES(mutex_);
  /// Keeps the plan of the generation; returns the hash of this worker's Program, 0 when the plan
  /// has none for it.
  Result<uint64_t> Lower(int64_t generation, const std::string& plan_json) HEDDLE_EXCLUDES(mutex_);
  /// What Lower has kept. A worker that leaves was not asked to prepare; it still has to know what
  /// the others will hold: the plan is lowered now.
  Result<std::shared_ptr<const Lowered>> FindOrLower(int64_t generation,
                                                     const std::string& plan_json)
      HEDDLE_EXCLUDES(mutex_);
  void ForgetBelow(int64_t generation) HEDDLE_EXCLUDES(mutex_);

 private:
  std::shared_ptr<const Lowered> Find(int64_t generation) HEDDLE_EXCLUDES(mutex_);

  const JobContext& context_;
  Mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Lowered>> plans_ HEDDLE_GUARDED_BY(mutex_);
  program::WorkerProfile profile_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
