/// \file
/// What the coordinator knows of one worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/connection.h"
#include "elastic/control/provenance.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// What a process reports of itself in the Hello of every connection.
struct WorkerIdentity {
  std::string host;
  std::string failure_domain;
  int64_t pid = 0;
  std::string data_address;
  std::string metrics_address;
  std::string network;
  std::string probe_address;
  wire::Emulation emulation;
  Arithmetic arithmetic;    ///< Empty: not known, because the job names its device.
  Arithmetic on_processor;  ///< The arithmetic if the job then names the processor.
};

/// Termination notices of a worker's process, which numbers them from 1 on.
struct Notices {
  bool count = false;     ///< The worker leaves, and its process ends whatever is decided.
  int64_t newest = 0;     ///< The newest notice that the worker reported.
  int64_t withdrawn = 0;  ///< Notices up to this one no longer count.
};

/// What a worker reports of its waits, for other workers or for storage.
struct WorkerWaits {
  bool any = false;
  std::vector<std::string> names = {};  ///< The workers that its connections wait for.
  int64_t generation = 0;               ///< The generation whose group those connections are of.
  Time changed_at = {};                 ///< When `any` last changed.
};

/// Progress of receiving the state for the next generation, in bytes.
struct WorkerMove {
  int64_t moved = 0;  ///< Bytes received so far.
  int64_t all = 0;    ///< Bytes to receive; 0: no state is being moved.
};

/// A worker as its messages have described it.
struct Worker : WorkerIdentity {
  std::string name;
  std::string incarnation;

  ConnectionId connection = 0;  ///< 0: not connected.
  bool welcomed = false;
  bool seen = true;     ///< False: known from the predecessor's durable state only.
  bool absent = false;  ///< Silent, but not lost: no plan counts on it before it is heard.
  Time last_heard_at;
  std::optional<Time> broken_at;  ///< When its connection broke, until it is back.

  std::string profile_json;
  std::optional<Time> profiling_until;
  bool draining = false;
  std::string leave_reason;
  Notices notices;

  wire::Standing standing = wire::STANDING_IDLE;
  int64_t standing_generation = 0;
  int64_t applied_step = 0;
  int64_t progress = 0;               ///< Heartbeat.progress, as the worker counts it.
  std::optional<Time> progressed_at;  ///< When a heartbeat last reported more progress.
  WorkerMove move;
  WorkerWaits waits;

  /// Records all of a heartbeat but waits.names.
  void Take(const wire::Heartbeat& message, Duration profile_timeout, Time now);
  /// True if it is present and has a profile.
  bool IsAble() const { return welcomed && seen && !absent && !profile_json.empty(); }
  /// True if a plan may count on it.
  bool IsCandidate() const { return IsAble() && !draining; }
};

/// A worker that is to be given up, and the reason.
struct Loss {
  std::string worker;
  std::string reason;
  /// True if its process may join as a new worker. False where it would fail again, or compete with
  /// another process for its name.
  bool rejoins = true;
  std::vector<std::string> accusers = {};  ///< The workers that reported it.
};

}  // namespace heddle::elastic
