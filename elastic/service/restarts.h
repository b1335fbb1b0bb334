/// \file
/// When the lost workers of `train` are started again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace heddle::elastic {

/// A worker that had lived for ten seconds is started again at once. One that ends sooner, time
/// after time, waits one second, then twice as long each time, up to a minute: what ends it may
/// well end it again. Pure. Thread: one caller at a time.
class Restarts {
 public:
  void Started(const std::string& name, Time now);
  void Ended(const std::string& name, Time now);
  /// Those that are to be started now; each is named once for each time that it ended.
  std::vector<std::string> TakeDue(Time now);
  /// None: nobody waits.
  std::optional<Time> NextDue() const;

 private:
  struct Life {
    Time started;
    int short_lives = 0;  ///< In a row.
    std::optional<Time> due;
  };
  std::map<std::string, Life> lives_;
};

}  // namespace heddle::elastic
