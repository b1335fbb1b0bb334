/// \file
/// Profiles that were measured before, so that a worker that starts again does not spend seconds on
/// them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/program/profile.h"

namespace heddle::elastic {

struct ProfileKey {
  const graph::Graph* graph = nullptr;
  /// Emulated workers of one machine share a profile, whatever their speeds are.
  bool emulated = false;
  int64_t threads = 1;
};

struct KeptProfile {
  program::WorkerProfile profile;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
};

/// The folder of the cache: $HEDDLE_CACHE, else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle.
/// Empty: there is no cache, as when HEDDLE_CACHE is set and empty.
std::string CacheFolder();

/// The profiles of one machine: each is measured once, for all workers that run on it, so that
/// their plan follows from the speeds that they were given and not from a neighbour's load while
/// one of them was measured. Thread: one; processes may share a folder.
class MachineProfiles {
 public:
  using Measure = std::function<Result<program::WorkerProfile>()>;

  /// `folder`: where profiles are kept, made when it is not there; empty: they are known to this
  /// object alone.
  explicit MachineProfiles(std::string folder) : folder_(std::move(folder)) {}

  /// The profile that is kept for this key, this boot of this machine and this executable, when it
  /// is less than a day old and has every node of the graph; otherwise what `measure` returns,
  /// which is kept. Processes that share the folder measure one after the other; one that waited
  /// for 20 s measures beside the others. `worker` and `memory_bytes` of a kept profile are
  /// another's: the caller sets them. A folder that cannot be read, written or locked costs a
  /// warning, no more. Errors: measure's.
  Result<KeptProfile> Get(const ProfileKey& key, const Measure& measure);

 private:
  Result<KeptProfile> GetKept(const std::string& name,
                              const graph::Graph& graph,
                              const Measure& measure);

  std::string folder_;
  std::map<std::string, KeptProfile> known_;  ///< By the file's name.
};

}  // namespace heddle::elastic
