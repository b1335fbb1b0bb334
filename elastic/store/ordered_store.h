/// \file
/// The coordinator's facts and the run's log, in the order in which they become durable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// A store beside the log of a run. Thread: one caller at a time.
class OrderedStore : public StateStore {
 public:
  /// `sync_log` makes durable what was logged before.
  OrderedStore(std::unique_ptr<StateStore> store, std::function<Status()> sync_log)
      : store_(std::move(store)),
        sync_log_(std::move(sync_log)) {}

  /// What a predecessor has stored it had logged before.
  Result<std::optional<DurableState>> Load() override;
  /// Where the facts say that further steps are known, the log is durable before they are: workers
  /// forget the records of these steps then. Errors: kUnavailable when the log cannot
  /// be; those of the store.
  Status Save(const DurableState& state) override;

 private:
  const std::unique_ptr<StateStore> store_;
  const std::function<Status()> sync_log_;
  int64_t known_step_ = 0;
};

}  // namespace heddle::elastic
