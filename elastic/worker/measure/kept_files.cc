#include "elastic/worker/measure/kept_files.h"

#include <cerrno>
#include <cstdlib>
#include <utility>

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

namespace heddle::elastic {
namespace {

constexpr Duration kLongestLock = std::chrono::seconds(20);
constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
constexpr double kMaxAgeSeconds =
    24 * 3600;  // Other tenants and thermal limits of a machine change.

// Identifies the executable, whose kernels may be others than another one's: a rebuilt executable
// measures anew.
std::string ExecutableIdentity() {
  struct stat status = {};
  if (::stat("/proc/self/exe", &status) != 0) {
    return "";
  }
  return fmt::format("{}/{}/{}.{:09}", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

std::string FileName(std::string_view kind, std::string_view key) {
  const std::string text = fmt::format("{}\n{}\n{}", HostIdentity(), ExecutableIdentity(), key);
  return fmt::format("{}-{}.json", kind, Hash128Hex(std::as_bytes(std::span(text))));
}

Result<KeptText> Load(const std::string& path, const KeptFiles::Check& check) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 ||
      WallClockSeconds() - static_cast<double>(status.st_mtime) > kMaxAgeSeconds) {
    return NotFoundError("{}: none that is recent", path);
  }
  HEDDLE_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxFileBytes));
  if (const Status checked = check(text); !checked.ok()) {
    return checked.WithContext("{}", path);
  }
  return KeptText{.text = std::move(text), .measured_at = static_cast<double>(status.st_mtime)};
}

/// Locks `folder` until the returned descriptor is closed.
Result<UniqueFd> LockFolder(const std::string& folder) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(folder));
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + folder);
  }
  HEDDLE_RETURN_IF_ERROR(LockWithin(fd, folder, kLongestLock));
  return fd;
}

Result<KeptText> MeasureNow(const KeptFiles::Measure& measure) {
  HEDDLE_ASSIGN_OR_RETURN(std::string text, measure());
  return KeptText{.text = std::move(text), .measured_at = WallClockSeconds()};
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return value == nullptr ? "" : value;
}

}  // namespace

std::string CacheFolder() {
  if (std::getenv("HEDDLE_CACHE") != nullptr) {  // NOLINT(concurrency-mt-unsafe): no thread sets it
    return Environment("HEDDLE_CACHE");
  }
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/heddle";
  }
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.cache/heddle";
}

Result<KeptText> KeptFiles::Get(std::string_view kind,
                                std::string_view key,
                                const Check& check,
                                const Measure& measure) {
  const std::string name = FileName(kind, key);
  if (const auto known = known_.find(name); known != known_.end()) {
    return known->second;
  }
  HEDDLE_ASSIGN_OR_RETURN(KeptText kept,
                          folder_.empty() ? MeasureNow(measure) : GetKept(name, check, measure));
  return known_.emplace(name, std::move(kept)).first->second;
}

Result<KeptText> KeptFiles::GetKept(const std::string& name,
                                    const Check& check,
                                    const Measure& measure) {
  const Result<UniqueFd> lock = LockFolder(folder_);
  if (!lock.ok()) {
    LogWarning("kept measurements: {}", lock.status().message());
  }
  const std::string path = folder_ + "/" + name;
  Result<KeptText> kept = Load(path, check);
  if (kept.ok()) {
    return kept;
  }
  if (kept.status().code() != StatusCode::kNotFound) {
    LogWarning("what is kept is measured anew: {}", kept.status().message());
  }
  HEDDLE_ASSIGN_OR_RETURN(KeptText measured, MeasureNow(measure));
  if (const Status status = WriteFileAtomically(path, measured.text); !status.ok()) {
    LogWarning("a measurement is not kept: {}", status.message());
  }
  return measured;
}

}  // namespace heddle::elastic
