/// \file
/// Workers that come and are lost again and again. Each coming and each loss costs everybody a
/// change of plan, so whoever was lost shortly after it came is held off: from the second short
/// life in a row on, for twice as long each time. The first one is an accident like any other.
/// Source of the rule: Horovod's blacklist with cooldown, docs.horovod.ai "Elastic Horovod".
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// By name: a worker without one gets another each time and is not known again. What it knows is
/// not durable: a restarted coordinator learns it anew. Thread: one caller at a time. A copy is an
/// independent machine.
class Quarantine {
 public:
  struct Sentence {
    Duration pause{0};
    int short_lives = 0;  ///< In a row.
  };

  void Join(const std::string& name, Time now) { lives_[name].joined = now; }
  /// It left as it was asked to: all is forgotten.
  void Leave(const std::string& name) { lives_.erase(name); }
  /// None: it may come back at once. Also where it never joined.
  std::optional<Sentence> Lose(const std::string& name, const QuarantinePolicy& policy, Time now);
  /// None: it may come. Else for how long it is held off from `now` on; more than 0.
  std::optional<Sentence> Find(const std::string& name, Time now) const;
  /// Those that are held off.
  int CountAt(Time now) const;

 private:
  struct Life {
    std::optional<Time> joined = {};  ///< None: it is not here.
    Time lost = {};
    int short_lives = 0;
    Duration pause{0};
  };
  void Prune(const QuarantinePolicy& policy, Time now);

  std::map<std::string, Life> lives_;  ///< Of those that are here, and of those lost lately.
};

}  // namespace heddle::elastic
