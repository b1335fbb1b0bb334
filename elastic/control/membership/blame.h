/// \file
/// Who is at fault is not who reported: accusations are collected for one probe window. An accused
/// worker that fell silent is lost. When all of them still answer, a link between two live workers
/// is broken: the one that most others accuse goes, ties go to the higher rank, so that both sides
/// of the link never take turns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Blame {
 public:
  struct Verdict {
    std::vector<Loss> losses;
    bool unknown = false;  ///< Somebody failed without knowing why, and nobody is to blame.
  };

  /// `accused` empty: the accuser cannot say who. Those that have broken away already and fit the
  /// accusation are lost: no grace is needed.
  std::vector<Loss> Accuse(const std::string& accuser,
                           const std::string& accused,
                           const std::string& reason,
                           const Roster& roster,
                           const Generations& generations,
                           Time now);
  /// Whether a worker is accused, as a member also by an accusation that names nobody.
  bool Fits(const std::string& worker, bool is_member) const;
  /// Once the probe window of an accusation is over; before, an empty verdict. `ranks`: those that
  /// are connected to each other, by rank.
  Verdict Judge(const Roster& roster,
                const std::vector<std::string>& ranks,
                Duration probe,
                Time now);

  bool empty() const { return accusations_.empty(); }
  void Clear() { accusations_.clear(); }
  std::optional<Time> NextDeadline(Duration probe) const;

 private:
  struct Accusation {
    std::string accuser;
    std::string accused;
    std::string reason;
    Time at;
  };
  static Loss MostAccused(const std::vector<Accusation>& accusations,
                          const Roster& roster,
                          const std::vector<std::string>& ranks);

  std::vector<Accusation> accusations_;
};

}  // namespace heddle::elastic
