/// \file
/// Stores of the coordinator's durable state. One coordinator at a time owns a store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

/// The term of an owner of a store, if coordinators on several machines lead in turn.
struct StoreTerm {
  std::string store;   ///< Identifies the store to all its coordinators; empty: it has one only.
  int64_t number = 0;  ///< Higher for later owners.
};

/// A store of the coordinator's durable state. Thread: one caller at a time, but for Owned and
/// term.
class StateStore {
 public:
  virtual ~StateStore() = default;
  /// The state that was saved last; nullopt if none was. Errors: kDataLoss (it cannot be read);
  /// kAborted, kUnavailable and kDeadlineExceeded as Save.
  virtual Result<std::optional<DurableState>> Load() = 0;
  /// Replaces the whole state atomically; it is durable on return. Errors: kResourceExhausted (the
  /// disk is full, or the state is larger than the store takes), kAborted (generation_counter went
  /// backwards, or another coordinator owns the store or may own it), kUnavailable and
  /// kDeadlineExceeded (the store does not answer). After any error but kAborted the store holds
  /// the former or the new state, and Save may be called again. May take long.
  virtual Status Save(const DurableState& state) = 0;
  /// Ok while no other coordinator can own the store. Errors: kAborted, for good: the coordinator
  /// must not write any more, to a run's folder either. Thread: any.
  virtual Status Owned() const { return Status::Ok(); }
  /// The term of this owner. Thread: any.
  virtual StoreTerm term() const { return {}; }
};

/// The name of a coordinator's SQLite file in its folder.
inline constexpr const char* kStoreFile = "coordinator.sqlite";

/// Ok if the path is short enough for SQLite. Errors: kInvalidArgument with the longest length.
Status CheckSqlitePath(const std::string& path);

/// Opens or creates a SQLite file with synchronous=FULL, locked by this process for the store's
/// life. Errors: those of CheckSqlitePath, before any file is made; kFailedPrecondition (another
/// coordinator has it open), kDataLoss (not a coordinator's file, or of another version),
/// kPermissionDenied.
Result<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path);

}  // namespace heddle::elastic
