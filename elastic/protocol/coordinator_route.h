/// \file
/// Which of several coordinators is asked next: one of them leads at a time, and a standby names
/// the leader.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace heddle::elastic {

/// Key of the trailing metadata that a standby coordinator adds to its answers: HOST:PORT of the
/// leader; empty if it knows none.
inline constexpr const char* kLeaderKey = "heddle-leader";

/// Goes through the listed coordinators in order, again and again. After one that names the leader
/// it goes to the leader. Thread: one caller at a time.
class CoordinatorRoute {
 public:
  /// `coordinators`: one HOST:PORT, or several separated by commas.
  explicit CoordinatorRoute(const std::string& coordinators);

  const std::vector<std::string>& listed() const { return listed_; }
  /// HOST:PORT of the coordinator to ask.
  const std::string& current() const { return named_.empty() ? listed_[next_] : named_; }
  /// True if the coordinator asked before has named the current one as the leader.
  bool is_named() const { return !named_.empty(); }
  /// The current coordinator was asked and does not lead: moves to the next one. `leader`: the one
  /// that it named; empty: none.
  void MoveOn(const std::string& leader);

 private:
  std::vector<std::string> listed_;
  size_t next_ = 0;
  std::string named_;
};

}  // namespace heddle::elastic
