/// \file
/// Where the coordinator's durable facts live. One coordinator at a time owns a store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

/// Which ownership of a store this is, where coordinators on several machines take turns.
struct StoreTerm {
  std::string store;   ///< The same for all of its coordinators; empty: no others take turns.
  int64_t number = 0;  ///< Of later owners higher.
};

/// Thread: one caller at a time, but for Owned and term.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// What was saved last; nothing when nothing was. Errors: kDataLoss when it cannot be read,
  /// kAborted as Save.
  virtual Result<std::optional<DurableState>> Load() = 0;
  /// Replaces all of it; durable on return, all or nothing. Errors: kResourceExhausted (disk full,
  /// or more than the store takes), kAborted (generation_counter went backwards, or the store is no
  /// longer ours: another coordinator has written, or may), kUnavailable and kDeadlineExceeded
  /// (the store does not answer). After any but kAborted it may be called again, and holds what was
  /// there before or what was to be saved. May take long.
  virtual Status Save(const DurableState& state) = 0;
  /// OK while nobody else can own the store. Errors: kAborted, for good: whatever the coordinator
  /// would still write, to a run's folder too, is another's to write. Thread: any.
  virtual Status Owned() const { return Status::Ok(); }
  /// Thread: any.
  virtual StoreTerm term() const { return {}; }
};

/// The name of a coordinator's SQLite file in its folder.
inline constexpr const char* kStoreFile = "coordinator.sqlite";

/// Whether SQLite takes a file of this name. Errors: kInvalidArgument, with how long it may be.
Status CheckSqlitePath(const std::string& path);

/// A SQLite file with synchronous=FULL, locked by this process for the store's life.
/// Errors: as CheckSqlitePath, before anything is made; kFailedPrecondition (another coordinator
/// has it open), kDataLoss (not our file, or a newer version), kPermissionDenied.
Result<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path);

}  // namespace heddle::elastic
