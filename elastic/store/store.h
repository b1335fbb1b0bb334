/// \file
/// Where the coordinator's durable facts live. One coordinator at a time owns a store.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

/// Thread: one caller at a time.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// What was saved last; nothing when nothing was. Errors: kDataLoss when it cannot be read.
  virtual Result<std::optional<DurableState>> Load() = 0;
  /// Replaces all of it; durable on return, all or nothing. Errors: kResourceExhausted (disk full),
  /// kAborted (generation_counter went backwards: another coordinator has written). After others it
  /// may be called again, and holds what was there before or what was to be saved. May take long.
  virtual Status Save(const DurableState& state) = 0;
};

/// A SQLite file with synchronous=FULL, locked by this process for the store's life.
/// Errors: kFailedPrecondition (another coordinator has it open), kDataLoss (not our file, or a
/// newer version), kPermissionDenied.
Result<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path);

}  // namespace heddle::elastic
