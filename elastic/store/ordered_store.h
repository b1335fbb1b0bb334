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
  /// Where the facts say that further steps are known, or that another generation is in force, the
  /// log is durable before they are: workers forget the records of these steps then, and each
  /// generation has its decision in the log. Errors: kUnavailable when the log cannot be; those of
  /// the store.
  Status Save(const DurableState& state) override;
  Status Owned() const override { return store_->Owned(); }
  StoreTerm term() const override { return store_->term(); }

 private:
  void Note(const DurableState& state);

  const std::unique_ptr<StateStore> store_;
  const std::function<Status()> sync_log_;

  int64_t known_step_ = 0;
  int64_t generation_ = 0;  ///< In force; 0: none.
};

}  // namespace heddle::elastic
