/// \file
/// The profiles that a machine keeps.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "elastic/worker/measure/kept_files.h"
#include "engine/graph/graph.h"
#include "engine/program/profile.h"

namespace heddle::elastic {

struct ProfileKey {
  const graph::Graph* graph = nullptr;
  /// Emulated workers of one machine share a profile, whatever their speeds are: their plan follows
  /// from the speeds that they were given and not from a neighbour's load while one of them was
  /// measured.
  bool emulated = false;
  int64_t threads = 1;
};

struct KeptProfile {
  program::WorkerProfile profile;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
};

/// The profile of KeptFiles::Get that has every node of the graph. `worker` and `memory_bytes` of a
/// kept one are another's: the caller sets them. Errors: measure's.
Result<KeptProfile> GetProfile(KeptFiles& files,
                               const ProfileKey& key,
                               const std::function<Result<program::WorkerProfile>()>& measure);

}  // namespace heddle::elastic
