/// \file
/// Holds off workers that join and are lost again and again. Each join and each loss costs all
/// workers a change of plan, so from its second short life in a row on a worker is held off, for
/// twice as long each time. Source of the rule: Horovod's blacklist with cooldown, docs.horovod.ai
/// "Elastic Horovod".
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// The short lives of workers, by name. A worker without a name of its own gets another one each
/// time and is not recognized. They are not durable: a restarted coordinator starts without them.
/// Thread: one caller at a time. A copy is an independent machine.
class Quarantine {
 public:
  struct HoldOff {
    Duration pause{0};    ///< How long the worker is held off.
    int short_lives = 0;  ///< Its short lives in a row.
  };

  void Join(const std::string& name, Time now) { lives_[name].joined = now; }
  /// The worker left as it was asked to: its history is forgotten.
  void Leave(const std::string& name) { lives_.erase(name); }
  /// The worker was lost: how long it is held off; nullopt if it may join again at once, or had not
  /// joined.
  std::optional<HoldOff> Lose(const std::string& name, const QuarantinePolicy& policy, Time now);
  /// How long the worker is held off from `now` on, more than 0; nullopt if it may join.
  std::optional<HoldOff> Find(const std::string& name, Time now) const;
  /// The number of workers that are held off at `now`.
  int CountAt(Time now) const;

 private:
  struct Life {
    std::optional<Time> joined = {};  ///< nullopt: it is lost.
    Time lost = {};
    int short_lives = 0;
    Duration pause{0};
  };
  void Prune(const QuarantinePolicy& policy, Time now);

  std::map<std::string, Life> lives_;  ///< Joined workers and those lost lately, by name.
};

}  // namespace heddle::elastic
