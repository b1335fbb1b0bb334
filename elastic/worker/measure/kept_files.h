/// \file
/// A cache of measurements on a machine's disk, so that a restart does not spend seconds on them
/// and all processes of the machine plan with the same figures.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::elastic {

/// The folder of the cache: $HEDDLE_CACHE, else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle.
/// The result is empty if there is no cache, also when HEDDLE_CACHE is set and empty.
std::string CacheFolder();

/// A measurement as text.
struct KeptText {
  std::string text;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
};

/// The cache. Each measurement is made once for all processes that share the folder. Thread: one
/// caller at a time.
class KeptFiles {
 public:
  using Check = std::function<Status(std::string_view)>;
  using Measure = std::function<Result<std::string>()>;

  /// `folder` is made if it is missing; empty: measurements are kept in this object alone.
  explicit KeptFiles(std::string folder) : folder_(std::move(folder)) {}

  /// Returns the text that is kept as `kind` for this key, this boot of this machine and this
  /// executable, if it is at most a day old and passes `check`. Otherwise calls `measure`, keeps
  /// what it returns and returns it. Processes that share the folder measure one after the other; a
  /// process that has waited for 20 s measures beside the others. If the folder cannot be read,
  /// written or locked, logs a warning and measures. Errors: those of `measure`.
  Result<KeptText> Get(std::string_view kind,
                       std::string_view key,
                       const Check& check,
                       const Measure& measure);

 private:
  Result<KeptText> GetKept(const std::string& name, const Check& check, const Measure& measure);

  std::string folder_;
  std::map<std::string, KeptText> known_;  ///< Texts returned before, by file name.
};

}  // namespace heddle::elastic
