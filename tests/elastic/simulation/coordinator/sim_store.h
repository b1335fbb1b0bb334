/// \file
/// The coordinator's store: what is on the disk, and what writing there may come to.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

class Cluster;
class CoordinatorProcess;

/// As elastic/store/ordered_store.h promises: what was logged is durable before facts that say so,
/// a write is all or nothing, and one that failed may have arrived. Thread: one caller.
class SimStore {
 public:
  explicit SimStore(Cluster& cluster) : cluster_(cluster) {}

  /// What is on the disk; none: nothing was ever saved.
  const std::optional<DurableState>& state() const { return state_; }
  /// As a coordinator that starts reads it.
  std::optional<DurableState> Load() const;
  /// One at a time. `done` is called with the outcome, at once or later: kAborted where `writer` is
  /// not the one that owns the store, or is not any more.
  void Save(const CoordinatorProcess& writer,
            const DurableState& state,
            std::function<void(const Status&)> done);
  /// The process that writes ends, or another one owns the store: what is being written arrives, or
  /// does not.
  void EndProcess();

  // Faults.
  void FailUntil(Time time) { fails_until_ = time; }
  void DelayNext(Duration time) { next_delay_ = time; }
  void Mend() { next_delay_.reset(); }
  /// All that was ever saved is gone.
  void Lose() {
    state_.reset();
    older_.clear();
  }

 private:
  void Arrive(const DurableState& state);

  Cluster& cluster_;
  std::optional<DurableState> state_;
  std::optional<DurableState> writing_;
  int64_t number_ = 0;  ///< Of the write.
  Time fails_until_;
  std::optional<Duration> next_delay_;
  std::vector<DurableState> older_;  ///< For Planted::kForgetGeneration.
};

}  // namespace heddle::elastic
