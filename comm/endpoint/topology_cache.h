/// \file
/// A cache of each group's Topology, because collectives of one group recur as long as its
/// generation lives.
#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "comm/cost/topology.h"

namespace heddle::comm {

/// A cache of topologies by group. Thread: any.
class TopologyCache {
 public:
  explicit TopologyCache(std::shared_ptr<const LinkTable> links) : links_(std::move(links)) {}

  /// The topology of `group` (ranks by position; empty: all members of the generation). `size`: the
  /// number of the generation's members. Precondition: the links, if known, are of `size` workers.
  std::shared_ptr<const Topology> Of(std::span<const int> group, int size) HEDDLE_EXCLUDES(mutex_) {
    std::vector<int> ranks(group.begin(), group.end());
    const MutexLock lock(mutex_);
    const auto found = made_.find(ranks);
    if (found != made_.end()) {
      return found->second;
    }
    if (made_.size() >= kMax) {
      made_.clear();
    }
    std::shared_ptr<const Topology>& made = made_[ranks];
    if (ranks.empty()) {
      ranks.resize(static_cast<size_t>(size));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    made = std::make_shared<const Topology>(links_ == nullptr
                                                ? Topology::Uniform(static_cast<int>(ranks.size()))
                                                : Topology::Of(*links_, ranks));
    return made;
  }

  std::shared_ptr<const LinkTable> links() const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return links_;
  }
  void SetLinks(std::shared_ptr<const LinkTable> links) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    links_ = std::move(links);
    made_.clear();
  }

 private:
  static constexpr size_t kMax = 1024;  ///< The most groups kept.

  mutable Mutex mutex_;
  std::shared_ptr<const LinkTable> links_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::vector<int>, std::shared_ptr<const Topology>> made_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
