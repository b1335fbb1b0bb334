/// \file
/// The decision of one generation in plain words: what happened, what was known, what else could
/// have been done and what it would have cost, what was chosen, and what it took.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/report/run_events.h"

namespace heddle::elastic {

/// Gathers what a log says of generations. Thread: one caller at a time.
class Explanations {
 public:
  /// In the log's order.
  void Note(const RunEvent& event);

  /// The newest generation with a decision; none: no generation has one.
  std::optional<int64_t> newest() const;
  /// Errors: kNotFound (no decision of that generation, with those that there are),
  /// kInvalidArgument (its entry cannot be read).
  Result<std::string> Explain(int64_t generation) const;
  /// Its entry of the log, as it stands there. Errors: kNotFound.
  Result<std::string> EntryOf(int64_t generation) const;

 private:
  struct Generation {
    std::optional<RunEvent> decision;
    std::optional<double> predicted_step_seconds;
    std::optional<RunEvent> recovered;
    std::vector<RunEvent> kept;  ///< Changes that were not made while it was in force.
    int kept_before = 0;         ///< So many more, before those.
    int64_t followed_by = 0;     ///< 0: none yet.
  };
  Result<const Generation*> Find(int64_t generation) const;
  static std::string Outcome(const Generation& generation, bool is_change);
  static std::string Kept(const Generation& generation);

  std::map<int64_t, Generation> generations_;
};

}  // namespace heddle::elastic
