#include "elastic/worker/measure/profile_cache.h"

#include <cerrno>
#include <cstdlib>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system/file.h"
#include "base/system/file_lock.h"
#include "base/system/host.h"
#include "base/system/unique_fd.h"
#include "engine/graph/operator.h"

namespace heddle::elastic {
namespace {

constexpr Duration kLongestLock = std::chrono::seconds(20);
constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
constexpr double kMaxAgeSeconds =
    24 * 3600;  // Other tenants and thermal limits of a machine change.

std::set<std::string> Signatures(const graph::Graph& graph) {
  std::set<std::string> signatures;
  for (const graph::Node& node : graph.nodes) {
    signatures.insert(graph::NodeSignature(graph, node));
  }
  return signatures;
}

// Kernels differ between executables: a rebuilt one measures anew.
std::string ExecutableIdentity() {
  struct stat status = {};
  if (::stat("/proc/self/exe", &status) != 0) {
    return "";
  }
  return fmt::format("{}/{}/{}.{:09}", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

std::string FileName(const ProfileKey& key) {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n", HostIdentity(), ExecutableIdentity(),
                                 key.emulated, key.threads);
  for (const std::string& signature : Signatures(*key.graph)) {
    text += signature + "\n";
  }
  return "profile-" + Hash128Hex(std::as_bytes(std::span(text))) + ".json";
}

Result<KeptProfile> Load(const std::string& path, const graph::Graph& graph) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 ||
      WallClockSeconds() - static_cast<double>(status.st_mtime) > kMaxAgeSeconds) {
    return NotFoundError("{}: none that is recent", path);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  HEDDLE_ASSIGN_OR_RETURN(program::WorkerProfile profile, program::ProfileFromJson(text));
  for (const std::string& signature : Signatures(graph)) {
    if (!profile.seconds.contains(signature)) {
      return DataLossError("{}: lacks {}", path, signature);
    }
  }
  return KeptProfile{.profile = std::move(profile),
                     .measured_at = static_cast<double>(status.st_mtime)};
}

/// The lock of `folder`, held until the descriptor is closed.
Result<UniqueFd> LockFolder(const std::string& folder) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(folder));
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + folder);
  }
  HEDDLE_RETURN_IF_ERROR(LockWithin(fd, folder, kLongestLock));
  return fd;
}

Result<KeptProfile> MeasureNow(const MachineProfiles::Measure& measure) {
  HEDDLE_ASSIGN_OR_RETURN(program::WorkerProfile profile, measure());
  return KeptProfile{.profile = std::move(profile), .measured_at = WallClockSeconds()};
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr ? "" : value;
}

}  // namespace

std::string CacheFolder() {
  if (std::getenv("HEDDLE_CACHE") != nullptr) {  // NOLINT(concurrency-mt-unsafe): nobody sets it
    return Environment("HEDDLE_CACHE");
  }
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/heddle";
  }
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.cache/heddle";
}

Result<KeptProfile> MachineProfiles::Get(const ProfileKey& key, const Measure& measure) {
  const std::string name = FileName(key);
  if (const auto known = known_.find(name); known != known_.end()) {
    return known->second;
  }
  HEDDLE_ASSIGN_OR_RETURN(KeptProfile profile, folder_.empty()
                                                   ? MeasureNow(measure)
                                                   : GetKept(name, *key.graph, measure));
  return known_.emplace(name, std::move(profile)).first->second;
}

Result<KeptProfile> MachineProfiles::GetKept(const std::string& name,
                                             const graph::Graph& graph,
                                             const Measure& measure) {
  const Result<UniqueFd> lock = LockFolder(folder_);
  if (!lock.ok()) {
    LogWarning("profiles: {}", lock.status().message());
  }
  const std::string path = folder_ + "/" + name;
  Result<KeptProfile> kept = Load(path, graph);
  if (kept.ok()) {
    return kept;
  }
  if (kept.status().code() != StatusCode::kNotFound) {
    LogWarning("the kept profile is measured anew: {}", kept.status().message());
  }
  HEDDLE_ASSIGN_OR_RETURN(KeptProfile measured, MeasureNow(measure));
  const Status status = WriteFileAtomically(path, program::ProfileToJson(measured.profile));
  if (!status.ok()) {
    LogWarning("the profile is not kept: {}", status.message());
  }
  return measured;
}

}  // namespace heddle::elastic
