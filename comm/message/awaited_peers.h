/// \file
/// The peers that a group's waits are for, so that other parts of the process can report them.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace heddle::comm {

/// Counts the waits for each peer. Waits of less than a few dozen milliseconds need not be counted;
/// only waits that sleep are. Thread: any.
class AwaitedPeers {
 public:
  explicit AwaitedPeers(size_t members) : waits_(members) {}

  /// Counts `waits` more waits for the member of `rank`.
  void Begin(int rank, int waits = 1) { At(rank).fetch_add(waits, std::memory_order_relaxed); }
  void End(int rank) { At(rank).fetch_sub(1, std::memory_order_relaxed); }
  /// Ranks of the members that are waited for, ascending.
  std::vector<int> Ranks() const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < waits_.size(); ++rank) {
      if (waits_[rank].load(std::memory_order_relaxed) > 0) {
        ranks.push_back(static_cast<int>(rank));
      }
    }
    return ranks;
  }

  /// Counts one wait for the member of `rank` while it lives.
  class Wait {
   public:
    Wait(AwaitedPeers& peers, int rank) : peers_(peers), rank_(rank) { peers_.Begin(rank_); }
    ~Wait() { peers_.End(rank_); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    AwaitedPeers& peers_;
    const int rank_;
  };

 private:
  std::atomic<int>& At(int rank) { return waits_[static_cast<size_t>(rank)]; }

  std::vector<std::atomic<int>> waits_;  ///< Number of waits, by rank.
};

}  // namespace heddle::comm
