/// \file
/// How many workers may be given up because nothing shows that they live. What seems to befall most
/// workers at once is more likely a fault of whoever watches them, or of its network, than of them:
/// then nobody is given up for a while, and whoever is heard meanwhile stays.
///
/// It counts those of whom nothing is heard, who owe an answer, or who were given up for that
/// lately. It does not count whom something else speaks against: its connection was closed while it
/// was heard, or a worker lost its connection to it, or to another one of its host or failure
/// domain, as when a rack loses its power; nor whom nobody has heard for
/// JobPolicy::cut_off_timeout. Source of the rule: Kubernetes' node lifecycle controller, "partial
/// disruption mode" (kubernetes.io, Nodes, "Rate limits on eviction").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

/// What it knows is not durable: a restarted coordinator counts anew. Thread: one caller at a time.
/// A copy is an independent machine.
class LossLimit {
 public:
  /// Nobody is given up for silence alone.
  struct Hold {
    Time since;
    int suspects = 0;  ///< Of whom nothing shows that they live …
    int workers = 0;   ///< … of so many, with those given up lately.
    friend bool operator==(const Hold&, const Hold&) = default;
  };

  /// Another worker lost its connection to it.
  void NoteAccused(const Worker& accused, Time now);
  /// Those of `suspected` that may be given up: all, or only whom more than silence speaks against.
  /// At most half of all workers are within JobPolicy::mass_silence, but always one; further ones
  /// are held for so long, and may then all be given up.
  std::vector<Loss> Admit(const std::vector<Loss>& suspected,
                          const Roster& roster,
                          const JobPolicy& policy,
                          Time now);
  /// While it holds: whether it still does, as some may have been heard since. `late`: who owes an
  /// answer now.
  void Look(const std::vector<Loss>& late, const Roster& roster, const JobPolicy& policy, Time now);

  const std::optional<Hold>& hold() const { return hold_; }
  /// When those that are held may be given up, if it holds and was not looked at since.
  std::optional<Time> NextDeadline(const JobPolicy& policy) const;

 private:
  /// More than silence speaks against it, or a silence that is longer than any fault.
  bool IsBeyondDoubt(const Worker& worker, const JobPolicy& policy, Time now) const;
  void Forget(const JobPolicy& policy, Time now);
  /// As it would be at `now` with these.
  Hold Count(const std::vector<Loss>& suspected,
             const Roster& roster,
             const JobPolicy& policy,
             Time now) const;

  /// When each that was given up for its silence lately was, the last time: one that comes and goes
  /// counts once.
  std::map<std::string, Time> given_up_;
  std::map<std::string, Time> accused_hosts_;
  std::map<std::string, Time> accused_domains_;
  std::optional<Hold> hold_;
  Time looked_at_;
};

}  // namespace heddle::elastic
