/// \file
/// The profiles in a machine's cache of measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/status.h"
#include "elastic/worker/measure/kept_files.h"
#include "engine/program/profile.h"
#include "engine/program/profiled_work.h"

namespace heddle::elastic {

/// What decides which profile a worker gets.
struct ProfileKey {
  const program::ProfiledWork* work = nullptr;
  /// Emulated workers of one machine share a profile at every speed, so that their plan depends on
  /// their emulated speeds and not on the machine's load while one of them was measured.
  bool emulated = false;
  int64_t threads = 1;
  /// What computes (runtime::Arithmetic): other kernels take another time.
  std::map<std::string, std::string> arithmetic = {};
};

/// A profile from the cache.
struct KeptProfile {
  program::WorkerProfile profile;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
};

/// Returns the profile for `key` from `files`, with a time for all of the work, or what
/// `measure` returns, which is kept. The caller has to set the profile's `worker` and
/// `memory_bytes`: those of a kept one are another worker's. Errors: those of `measure`.
Result<KeptProfile> GetProfile(KeptFiles& files,
                               const ProfileKey& key,
                               const std::function<Result<program::WorkerProfile>()>& measure);

}  // namespace heddle::elastic
