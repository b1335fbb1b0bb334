/// \file
/// How many workers may be given up because nothing shows that they live. If most workers seem lost
/// at once, the coordinator or its network is more likely at fault than the workers: losses are
/// then held for a while, and workers that are heard meanwhile stay.
///
/// Suspects are workers that are silent, whose reply is overdue, or that were given up for either
/// lately. A worker with other evidence against it is no suspect: its connection was closed while
/// it was heard, or another worker lost its connection to it or to a worker of its host or failure
/// domain (a rack without power), or it has been silent for JobPolicy::cut_off_timeout. Source of
/// the rule: Kubernetes' node lifecycle controller, "partial disruption mode" (kubernetes.io,
/// Nodes, "Rate limits on eviction").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

/// Counts suspects and holds losses. The counts are not durable: a restarted coordinator starts
/// again. Thread: one caller at a time. A copy is an independent machine.
class LossLimit {
 public:
  /// While it lasts, no worker is given up for silence alone.
  struct Hold {
    Time since;
    int suspects = 0;  ///< Suspects when it began.
    int workers = 0;   ///< All workers then, including those given up lately.
    friend bool operator==(const Hold&, const Hold&) = default;
  };

  /// Records that another worker lost its connection to `accused`.
  void NoteAccused(const Worker& accused, Time now);
  /// Returns those of `suspected` that may be given up: all, or during a hold only those with other
  /// evidence against them. For silence alone at most half of all workers, but always one, are
  /// given up within JobPolicy::mass_silence; further ones are held for that long, and may then all
  /// be given up.
  std::vector<Loss> Admit(const std::vector<Loss>& suspected,
                          const Roster& roster,
                          const JobPolicy& policy,
                          Time now);
  /// Ends the hold if enough workers have been heard since. `late`: workers whose reply is overdue.
  void Look(const std::vector<Loss>& late, const Roster& roster, const JobPolicy& policy, Time now);

  const std::optional<Hold>& hold() const { return hold_; }
  /// When the held workers may be given up; nullopt without a hold, or once that time was handled.
  std::optional<Time> NextDeadline(const JobPolicy& policy) const;

 private:
  /// True if there is other evidence against the worker, or its silence outlasts cut_off_timeout.
  bool IsBeyondDoubt(const Worker& worker, const JobPolicy& policy, Time now) const;
  /// Drops what is older than JobPolicy::mass_silence.
  void Forget(const JobPolicy& policy, Time now);
  /// The hold that would begin at `now` with these suspects.
  Hold Count(const std::vector<Loss>& suspected,
             const Roster& roster,
             const JobPolicy& policy,
             Time now) const;

  /// When each worker was last given up for its silence, by name: a worker that joins and is lost
  /// again counts once.
  std::map<std::string, Time> given_up_;
  std::map<std::string, Time> accused_hosts_;
  std::map<std::string, Time> accused_domains_;
  std::optional<Hold> hold_;
  Time looked_at_;
};

}  // namespace heddle::elastic
