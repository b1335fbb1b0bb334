/// \file
/// The links between workers' processes that are broken.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/elastic/simulation/world/world.h"

namespace heddle::elastic {

/// The broken links. Workers are named by the keys of their processes. Thread: one caller.
class SimLinks {
 public:
  explicit SimLinks(const World& world) : world_(world) {}

  void Break(const std::string& a, const std::string& b) { broken_.insert(std::minmax(a, b)); }
  void BreakDirection(const std::string& from, const std::string& to, Time until) {
    broken_directions_[{from, to}] = until;
  }
  void Mend() {
    broken_.clear();
    broken_directions_.clear();
  }

  bool are_whole() const { return broken_.empty() && broken_directions_.empty(); }
  /// Whether messages of `from` arrive at `to`.
  bool Carries(const std::string& from, const std::string& to) const {
    if (are_whole()) {
      return true;
    }
    const auto direction = broken_directions_.find({from, to});
    return broken_.count(std::minmax(from, to)) == 0 &&
           (direction == broken_directions_.end() || world_.now() >= direction->second);
  }
  /// Whether messages arrive both ways, as a connection or a question needs.
  bool Joins(const std::string& a, const std::string& b) const {
    return Carries(a, b) && Carries(b, a);
  }

 private:
  const World& world_;
  std::set<std::pair<std::string, std::string>> broken_;
  /// When each broken direction works again, by its two ends.
  std::map<std::pair<std::string, std::string>, Time> broken_directions_;
};

}  // namespace heddle::elastic
