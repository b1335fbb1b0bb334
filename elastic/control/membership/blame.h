/// \file
/// Who is at fault is not who reported: accusations are collected for one probe window. An accused
/// worker that fell silent is lost. When all of them still answer, a link between two live workers
/// is broken: the one that most others accuse goes, ties go to the higher rank, so that both sides
/// of the link never take turns.
///
/// Whoever hangs may be accused by nobody, or the wrong one: waits say who it is (wait_graph.h).
/// Of those who wait in a circle nobody can be told from the others, so the first time nobody is
/// given up: the fence that begins a recovery ends their waits, and who does not answer that one
/// hangs. When it comes again, without a step or a loss between, the one of the highest rank in the
/// circle is given up, as of a link whose both ends are accused. Where all do nothing and there is
/// no circle, everybody recovers each time: who hangs does not answer the fence.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/membership/wait_graph.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Blame {
 public:
  struct Verdict {
    std::vector<Loss> losses;
    bool unknown = false;  ///< Somebody failed without knowing why, and nobody is to blame.
    std::map<std::string, std::string> reports = {};  ///< Unknown: who failed, and what it said.
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
  /// Who accuses it, or a member by an accusation that names nobody.
  std::vector<std::string> AccusersOf(const std::string& worker, bool is_member) const;
  /// Once the probe window of an accusation is over; before, an empty verdict. `ranks`: those that
  /// are connected to each other, by rank.
  Verdict Judge(const Roster& roster,
                const std::vector<std::string>& ranks,
                Duration probe,
                Time now);

  /// Whether waits are to be judged again; not at each of many words.
  bool WaitsAreDue(Duration limit, Time now);
  /// Who hangs, of those who run something together. Unknown: nobody goes on, and nobody is known
  /// to be at fault.
  Verdict JudgeWaits(const WaitGraph& waits, Duration limit, Duration patience, Time now);
  /// A step was completed, or somebody was given up: whoever waits in a circle then does so for
  /// another reason.
  void ForgetCircle() { had_circle_ = false; }

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
  Time waits_judged_at_;
  bool had_circle_ = false;
};

}  // namespace heddle::elastic
