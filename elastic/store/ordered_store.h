/// \file
/// Orders the durability of the coordinator's state and of the run's log.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// A store that makes the log of a run durable first where that matters. Thread: one caller at a
/// time.
class OrderedStore : public StateStore {
 public:
  /// `sync_log` makes all log entries before the call durable.
  OrderedStore(std::unique_ptr<StateStore> store, std::function<Status()> sync_log)
      : store_(std::move(store)),
        sync_log_(std::move(sync_log)) {}

  /// Loads the state. The predecessor's log was durable up to it.
  Result<std::optional<DurableState>> Load() override;
  /// Saves the state. If a later step is known, or a later generation in force, than the last time,
  /// the log is made durable first: workers forget the records of known steps, and each generation
  /// has its decision in the log. Errors: kUnavailable (the log cannot be made durable); those of
  /// the store.
  Status Save(const DurableState& state) override;
  Status Owned() const override { return store_->Owned(); }
  StoreTerm term() const override { return store_->term(); }

 private:
  void Note(const DurableState& state);

  const std::unique_ptr<StateStore> store_;
  const std::function<Status()> sync_log_;

  int64_t known_step_ = 0;
  int64_t generation_ = 0;  ///< The generation in force as last saved or loaded; 0: none.
};

}  // namespace heddle::elastic
