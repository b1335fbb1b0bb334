/// \file
/// Explains the decision for a generation in plain words: what happened, what was known, which
/// alternatives there were and what each would cost, what was chosen, and how long it took.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/report/run_events.h"

namespace heddle::elastic {

/// Collects the log's events about generations. Thread: one caller at a time.
class Explanations {
 public:
  /// Takes an event; events come in the log's order.
  void Note(const RunEvent& event);

  /// The newest generation with a decision; nullopt if none has one.
  std::optional<int64_t> newest() const;
  /// The explanation of a generation's decision. Errors: kNotFound (the generation has no decision;
  /// the message names some that do), kInvalidArgument (the log entry is malformed).
  Result<std::string> Explain(int64_t generation) const;
  /// The log entry of a generation's decision, unchanged. Errors: kNotFound, as Explain.
  Result<std::string> EntryOf(int64_t generation) const;

 private:
  struct Generation {
    std::optional<RunEvent> decision;
    std::optional<double> predicted_step_seconds;
    std::optional<RunEvent> recovered;
    std::vector<RunEvent> kept;  ///< The newest plan_kept events while it was in force.
    int kept_before = 0;         ///< How many plan_kept events came before those.
    int64_t followed_by = 0;     ///< The next generation; 0: none yet.
  };
  Result<const Generation*> Find(int64_t generation) const;
  static std::string Outcome(const Generation& generation, bool is_change);
  static std::string Kept(const Generation& generation);

  std::map<int64_t, Generation> generations_;
};

}  // namespace heddle::elastic
