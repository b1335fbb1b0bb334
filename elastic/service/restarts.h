/// \file
/// When the lost workers of `train` are started again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace heddle::elastic {

/// The restarts of workers. A worker that had run for ten seconds is started again at once. One
/// that ends sooner waits for one second, and for twice as long each further time in a row, up to a
/// minute. Pure. Thread: one caller at a time.
class Restarts {
 public:
  /// Notes that a worker is started.
  void Started(const std::string& name, Time now);
  /// Notes that a worker has ended and is to be started again.
  void Ended(const std::string& name, Time now);
  /// Returns the workers to be started now; each is returned once for each time that it ended.
  std::vector<std::string> TakeDue(Time now);
  /// When the next worker is to be started; nullopt if none is.
  std::optional<Time> NextDue() const;

 private:
  struct Life {
    Time started;
    int short_lives = 0;      ///< Runs of less than ten seconds in a row.
    std::optional<Time> due;  ///< When to start it again; nullopt: it is not to be started.
  };
  std::map<std::string, Life> lives_;
};

}  // namespace heddle::elastic
