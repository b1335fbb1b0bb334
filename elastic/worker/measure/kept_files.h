/// \file
/// Measurements that a machine keeps, so that who starts again does not spend seconds on them, and
/// that all who run on the machine plan with the same figures.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::elastic {

/// The folder of the cache: $HEDDLE_CACHE, else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle.
/// Empty: there is no cache, as when HEDDLE_CACHE is set and empty.
std::string CacheFolder();

struct KeptText {
  std::string text;
  double measured_at = 0;  ///< Seconds of the wall clock since 1970.
};

/// Each measurement is made once, for all processes that share the folder. Thread: one; processes
/// may share a folder.
class KeptFiles {
 public:
  using Check = std::function<Status(std::string_view)>;
  using Measure = std::function<Result<std::string>()>;

  /// `folder`: made when it is not there; empty: what is measured is known to this object alone.
  explicit KeptFiles(std::string folder) : folder_(std::move(folder)) {}

  /// The text that is kept as `kind` for this key, this boot of this machine and this executable,
  /// when it is less than a day old and passes `check`; otherwise what `measure` returns, which is
  /// kept. Processes that share the folder measure one after the other; one that waited for 20 s
  /// measures beside the others. A folder that cannot be read, written or locked costs a warning,
  /// no more. Errors: measure's.
  Result<KeptText> Get(std::string_view kind,
                       std::string_view key,
                       const Check& check,
                       const Measure& measure);

 private:
  Result<KeptText> GetKept(const std::string& name, const Check& check, const Measure& measure);

  std::string folder_;
  std::map<std::string, KeptText> known_;  ///< By the file's name.
};

}  // namespace heddle::elastic
