/// \file
/// Which of several coordinators is asked next: they take turns in leading, and one that stands by
/// says who leads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace heddle::elastic {

/// What a coordinator that stands by adds to its answers, as metadata at their end: HOST:PORT of
/// the one that leads; empty when nobody is known to.
inline constexpr const char* kLeaderKey = "heddle-leader";

/// The list in its order, over and over; after one that names the leader, the leader. Never ends.
/// Thread: one caller at a time.
class CoordinatorRoute {
 public:
  /// HOST:PORT, or several with commas between.
  explicit CoordinatorRoute(const std::string& coordinators);

  const std::vector<std::string>& listed() const { return listed_; }
  /// Whom to ask.
  const std::string& current() const { return named_.empty() ? listed_[next_] : named_; }
  /// Whether the one asked before has named this one.
  bool is_named() const { return !named_.empty(); }
  /// The current one was asked, and is not the leader, or no longer. `leader`: whom it named;
  /// empty: nobody.
  void MoveOn(const std::string& leader);

 private:
  std::vector<std::string> listed_;
  size_t next_ = 0;
  std::string named_;
};

}  // namespace heddle::elastic
