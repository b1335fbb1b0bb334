/// \file
/// The coordinator's facts and the run's log, in the order in which they become durable.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// Thread: one caller at a time.
class OrderedStore {
 public:
  /// Either may be missing: null, or empty. The store outlives this.
  OrderedStore(StateStore* store, std::function<Status()> sync_log)
      : store_(store),
        sync_log_(std::move(sync_log)) {}

  /// What is stored there already was logged by a predecessor.
  void GoOnFrom(int64_t known_step) { known_step_ = known_step; }
  /// Stores the facts; where they say that further steps are known, the log with these first:
  /// workers forget them then.
  Status Save(const DurableState& state);

 private:
  StateStore* const store_;
  const std::function<Status()> sync_log_;
  int64_t known_step_ = 0;
};

}  // namespace heddle::elastic
