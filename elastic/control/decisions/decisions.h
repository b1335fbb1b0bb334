/// \file
/// Why one generation follows another: what happened, what was known, which alternatives there were
/// and what each would cost, what was chosen and why. Each generation that comes into force has one
/// entry in the log, written before the generation is durable. Another entry has the seconds that a
/// recovery took, once it is over.
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
  kForm,          ///< There was no generation, and enough workers have joined.
  kJoin,          ///< Workers joined while another generation trained.
  kLeave,         ///< A member is drained.
  kDrift,         ///< A member's speed, or a link, has changed.
  kImprove,       ///< A recovery took the first good plan; there may be a better one.
  kTakeBack,      ///< A change made steps slower: the plan before it is put in force again.
  kLoss,          ///< A member, or a worker that took part in a transition, was lost.
  kFailure,       ///< Something failed, and no worker is known to be at fault.
  kUnreadable,    ///< The source of the state could not be read.
  kDisagreement,  ///< Workers hold different replicas of the state.
  kRestart,       ///< The coordinator restarted, and the generation that it found cannot go on.
};

const char* NameOf(Cause cause);

/// One thing that was known.
struct Evidence {
  std::string worker;                         ///< The worker concerned; empty: none in particular.
  std::string what;                           ///< What happened, in words.
  std::optional<double> silent_seconds = {};  ///< Seconds since the worker's last message.
  std::optional<double> slowdown = {};        ///< Measured over profiled busy time.
  std::vector<std::string> accusers = {};     ///< The workers that reported it.
};

/// One thing that could be done.
struct Alternative {
  std::string what;                    ///< "keep", "replan", or where the state would come from.
  std::optional<double> seconds = {};  ///< Predicted; nullopt: impossible, or not known.
  std::optional<int64_t> step = {};    ///< The step after which the job would continue.
  std::string note = {};               ///< Why it is impossible, or not chosen.
};

/// The decision in progress, and the recovery that is not over. Thread: one caller at a time. A
/// copy is an independent machine.
class Decisions {
 public:
  /// Records evidence that may lead to another generation. Repeated evidence is ignored, and of
  /// very much only the first is kept.
  void Note(Evidence evidence);
  /// Another generation is looked for because of `cause`. The first cause counts, but a cause of
  /// formation or of a change is replaced by a later one.
  void Begin(Cause cause);
  /// Forgets evidence and alternatives: no generation came of them.
  void Drop();

  /// Records the possible sources of the state, after a loss or without a generation. `options`: at
  /// least one, the chosen one first, the others by their predicted time.
  void WeighSources(const std::vector<SourceOption>& options, const JobPolicy& policy);
  /// Records the possible plans while a generation trains; their seconds are those of the rest of
  /// the job. `pause_seconds`: predicted seconds without training. `scale`: the factor by which the
  /// planner's seconds were multiplied; nullopt: too few steps were measured.
  void WeighPlans(std::vector<Alternative> plans,
                  std::string choice,
                  std::string reason,
                  double pause_seconds,
                  std::optional<double> scale = {});

  /// Logs that the plan in force stays, and drops the decision.
  void LogKept(int64_t generation, Outbox& out);

  /// A new generation as it comes into force.
  struct Outcome {
    int64_t generation = 0;
    int64_t follows = 0;                 ///< The generation before; 0: none.
    std::optional<Duration> pause = {};  ///< How long training paused; nullopt: none ran before.
    std::optional<Time> since = {};      ///< When the recovery began; nullopt: it is no recovery.
    int64_t reached_step = 0;            ///< The newest step that the job had reached.
    /// The job waited for workers, without a plan: its seconds do not predict other recoveries.
    bool has_waited = false;
  };
  /// Logs the decision for a generation; called before the generation is durable.
  void LogDecision(const Outcome& outcome, Outbox& out);
  /// The record of `step` is known. Logs the recovery as over once the job is where it had been.
  void NoteStep(int64_t step, Time now, Outbox& out);

 private:
  RawJson EvidenceJson() const;
  RawJson AlternativesJson() const;
  std::string CauseName() const;
  double Overhead() const;

  // The decision in progress.
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
  /// The seconds of the last recoveries without those that depend on the source: stopping, planning
  /// and connecting.
  std::deque<double> overheads_;
};

}  // namespace heddle::elastic
