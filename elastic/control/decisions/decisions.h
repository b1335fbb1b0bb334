/// \file
/// Why one generation follows another: what happened, what was known of it, what could have been
/// done and what that would have cost, what was chosen and why. Each generation that comes into
/// force has one entry of the log, written before the generation is durable. What was found when it
/// is over, the seconds that it took, is another entry.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/outbox.h"
#include "elastic/control/source/state_sources.h"

namespace heddle::elastic {

enum class Cause : uint8_t {
  kForm,          ///< There was no generation, and enough workers have come.
  kJoin,          ///< Workers came while another generation trained.
  kLeave,         ///< A member is drained.
  kDrift,         ///< A member's speed, or a link, has changed.
  kImprove,       ///< A recovery took the first good plan; there may be a better one.
  kTakeBack,      ///< A change made steps slower: the plan before it comes again.
  kLoss,          ///< A member, or one who took part in a change, was lost.
  kFailure,       ///< Members failed, or disagree, and nobody is to blame.
  kUnreadable,    ///< What the state was to come from could not be read.
  kDisagreement,  ///< Workers hold unlike replicas of the state.
  kRestart,       ///< The coordinator is new, and what it found cannot go on as it is.
};

const char* NameOf(Cause cause);

/// What was known.
struct Evidence {
  std::string worker;                         ///< Empty: it is of nobody in particular.
  std::string what;                           ///< What it did, or was seen to do.
  std::optional<double> silent_seconds = {};  ///< Since its last word.
  std::optional<double> slowdown = {};        ///< Measured over profiled busy time.
  std::vector<std::string> accusers = {};     ///< Who reported it.
};

/// What could have been done.
struct Alternative {
  std::string what;                    ///< "keep", "replan", or where the state would come from.
  std::optional<double> seconds = {};  ///< Predicted; none: it could not be done, or nobody knows.
  std::optional<int64_t> step = {};    ///< That the job would go on after.
  std::string note = {};               ///< Why it could not be done.
};

/// Thread: one caller at a time. A copy is an independent machine.
class Decisions {
 public:
  /// Something is seen that may lead to another generation. The same again changes
  /// nothing; of much only the first is kept.
  void Note(Evidence evidence);
  /// Another generation is looked for. Of the causes of one that is under way the first counts, but
  /// for those of a change that a loss ends.
  void Begin(Cause cause);
  /// Nothing is under way any more, and no generation came of it.
  void Drop();

  /// After a loss, or without a generation: where the state could come from, the choice first, then
  /// the quickest. At least one.
  void WeighSources(const std::vector<SourceOption>& options, const JobPolicy& policy);
  /// While a generation trains: seconds are those of the rest of the job. `pause_seconds`: for
  /// which nobody trains, predicted. `scale`: what the planner's seconds were multiplied by; none:
  /// nothing was measured that says so.
  void WeighPlans(std::vector<Alternative> plans,
                  std::string choice,
                  std::string reason,
                  double pause_seconds,
                  std::optional<double> scale = {});

  /// The plan in force stays, and that is all that comes of it.
  void LogKept(int64_t generation, Outbox& out);

  /// What a new generation is, when it comes into force.
  struct Outcome {
    int64_t generation = 0;
    int64_t follows = 0;                 ///< The one before; 0: none.
    std::optional<Duration> pause = {};  ///< For which nobody has trained; none: nobody did before.
    std::optional<Time> since = {};      ///< When the recovery began; none: it is none.
    int64_t reached_step = 0;            ///< Where the job had been.
    bool has_waited = false;  ///< For workers, without a plan: that is no measure of others.
  };
  /// Before the generation is durable.
  void LogDecision(const Outcome& outcome, Outbox& out);
  /// The record of `step` is known: a recovery is over when the job is where it had been.
  void NoteStep(int64_t step, Time now, Outbox& out);

 private:
  RawJson EvidenceJson() const;
  RawJson AlternativesJson() const;
  std::string CauseName() const;
  double Overhead() const;

  // Of what is under way.
  std::optional<Cause> cause_;
  std::vector<Evidence> evidence_;
  int64_t more_evidence_ = 0;
  std::vector<Alternative> alternatives_;
  std::string choice_;
  std::string reason_;
  std::optional<double> predicted_seconds_;
  std::optional<double> source_seconds_;
  std::optional<double> scale_;

  /// A recovery whose generation is in force, until the job is where it had been.
  struct Recovery {
    int64_t generation = 0;
    int64_t reached_step = 0;
    Time since;
    std::optional<double> predicted_seconds;
    std::optional<double> source_seconds;
    std::string source;
    bool has_waited = false;
  };
  std::optional<Recovery> recovery_;
  /// What the last recoveries took beside what depends on their source: stopping, planning,
  /// connecting.
  std::deque<double> overheads_;
};

}  // namespace heddle::elastic
