/// \file
/// The coordinator's simulated store: what is on the disk, and the outcomes that a write can have.
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

/// A store with the guarantees of elastic/store/ordered_store.h: logged events are durable before
/// the facts that rest on them, a write is all or nothing, and a write that failed may have
/// arrived. Thread: one caller.
class SimStore {
 public:
  explicit SimStore(Cluster& cluster) : cluster_(cluster) {}

  /// The state on the disk; nullopt: none was ever saved.
  const std::optional<DurableState>& state() const { return state_; }
  /// The state as a coordinator reads it when it starts; nullopt: none was ever saved.
  std::optional<DurableState> Load() const;
  /// Begins to write a state; one write at a time. `done` is called with the outcome, at once or
  /// later. Errors: kAborted where `writer` does not own the store, or owns it no longer.
  void Save(const CoordinatorProcess& writer,
            const DurableState& state,
            std::function<void(const Status&)> done);
  /// The writing process ended, or another one owns the store: by chance, the write in progress
  /// arrives or is lost.
  void EndProcess();

  // Faults.
  void FailUntil(Time time) { fails_until_ = time; }
  void DelayNext(Duration time) { next_delay_ = time; }
  void Mend() { next_delay_.reset(); }
  /// Deletes all that was ever saved.
  void Lose() {
    state_.reset();
    older_.clear();
  }

 private:
  void Arrive(const DurableState& state);

  Cluster& cluster_;
  std::optional<DurableState> state_;
  std::optional<DurableState> writing_;
  int64_t number_ = 0;  ///< The newest write's number.
  Time fails_until_;
  std::optional<Duration> next_delay_;
  std::vector<DurableState> older_;  ///< Earlier states, for Planted::kForgetGeneration.
};

}  // namespace heddle::elastic
