/// \file
/// Whom the waits of a group are for at this moment, for others that ask why nothing happens.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace heddle::comm {

/// Waits of less than a few dozen milliseconds need not be told: only those that sleep are. Thread:
/// any.
class AwaitedPeers {
 public:
  explicit AwaitedPeers(size_t members) : waits_(members) {}

  /// A wait for the member of `rank` sleeps.
  void Begin(int rank, int waits = 1) { At(rank).fetch_add(waits, std::memory_order_relaxed); }
  void End(int rank) { At(rank).fetch_sub(1, std::memory_order_relaxed); }
  /// Ascending.
  std::vector<int> Ranks() const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < waits_.size(); ++rank) {
      if (waits_[rank].load(std::memory_order_relaxed) > 0) {
        ranks.push_back(static_cast<int>(rank));
      }
    }
    return ranks;
  }

  /// A wait, as long as it lives.
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

  std::vector<std::atomic<int>> waits_;  ///< By rank: how many.
};

}  // namespace heddle::comm
