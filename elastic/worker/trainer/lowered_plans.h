/// \file
/// The lowered plans of the generations that this worker prepares for.
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

/// The lowered plans by generation. Thread: any.
class LoweredPlans {
 public:
  explicit LoweredPlans(const JobContext& context) : context_(context) {}

  /// Sets the profile that predicts the busy time of plans lowered from now on.
  void SetProfile(const program::WorkerProfile& profile) HEDDLE_EXCLUDES(mutex_);
  /// Lowers the plan of a generation and keeps it. Returns the hash of this worker's Program; 0 if
  /// the worker is not in the plan. Errors: those of reading and lowering the plan.
  Result<uint64_t> Lower(int64_t generation, const std::string& plan_json) HEDDLE_EXCLUDES(mutex_);
  /// Returns the kept plan of the generation, or lowers it now: a worker that leaves was not told
  /// to prepare, but has to know what the others will hold. Errors: those of Lower.
  Result<std::shared_ptr<const Lowered>> FindOrLower(int64_t generation,
                                                     const std::string& plan_json)
      HEDDLE_EXCLUDES(mutex_);
  /// Drops the plans of earlier generations.
  void ForgetBelow(int64_t generation) HEDDLE_EXCLUDES(mutex_);

 private:
  std::shared_ptr<const Lowered> Find(int64_t generation) HEDDLE_EXCLUDES(mutex_);

  const JobContext& context_;
  Mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Lowered>> plans_ HEDDLE_GUARDED_BY(mutex_);
  program::WorkerProfile profile_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::elastic
