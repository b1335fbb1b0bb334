/// \file
/// Profiles that were measured before, so that a worker that starts again does not spend seconds on
/// them.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/program/profile.h"

namespace heddle::elastic {

struct ProfileKey {
  const graph::Graph* graph = nullptr;
  double speed = 1;  ///< Emulated.
  int64_t threads = 1;
};

struct KeptProfile {
  program::WorkerProfile profile;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
};

/// The folder of the cache: $HEDDLE_CACHE, else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle.
/// Empty: there is no cache, as when HEDDLE_CACHE is set and empty.
std::string CacheFolder();

/// The profile that is kept in `folder` for this key, this boot of this machine and this
/// executable, when it is less than a day old and has every node of the graph; otherwise what
/// `measure` returns, which is kept. `worker` and `memory_bytes` of a kept profile are another's:
/// the caller sets them. A cache that cannot be read or written costs a warning, no more. Errors:
/// measure's. Thread: any; processes may share a folder.
Result<KeptProfile> CachedProfile(const std::string& folder,
                                  const ProfileKey& key,
                                  const std::function<Result<program::WorkerProfile>()>& measure);

}  // namespace heddle::elastic
