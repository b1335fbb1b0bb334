/// \file
/// What the coordinator knows of one worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/connection.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// What a process says of itself at every connection.
struct WorkerIdentity {
  std::string host;
  std::string failure_domain;
  int64_t pid = 0;
  std::string data_address;
  std::string metrics_address;
  std::string network;
  std::string probe_address;
  wire::Emulation emulation;
};

/// That its process is to end, numbered by it from 1 on.
struct Notices {
  bool count = false;     ///< It leaves, and its process ends whatever is decided.
  int64_t newest = 0;     ///< That it told of.
  int64_t withdrawn = 0;  ///< Up to this one they do not count.
};

/// What a worker says of its waits, for others or for storage.
struct WorkerWaits {
  bool any = false;
  std::vector<std::string> names = {};  ///< Whom its connections wait for,
  int64_t generation = 0;               ///< in this one's group.
  Time changed_at = {};                 ///< When it was last heard to wait, or not, anew.
};

/// Of the state that a worker is to get for the next generation, in bytes.
struct WorkerMove {
  int64_t moved = 0;  ///< What has come, …
  int64_t all = 0;    ///< … of so much; zero: none is on its way.
};

struct Worker : WorkerIdentity {
  std::string name;
  std::string incarnation;

  ConnectionId connection = 0;  ///< 0: none.
  bool welcomed = false;
  bool seen = true;     ///< False: known from the predecessor only.
  bool absent = false;  ///< Not heard, and not lost: no plan counts on it before it is heard.
  Time last_word;
  std::optional<Time> broken_at;  ///< Its stream broke and has not come back.

  std::string profile_json;
  std::optional<Time> profiling_until;
  bool draining = false;
  std::string leave_reason;
  Notices notices;

  wire::Standing standing = wire::STANDING_IDLE;
  int64_t standing_generation = 0;
  int64_t applied_step = 0;
  int64_t progress = 0;               ///< As it counts.
  std::optional<Time> progressed_at;  ///< When that was last heard to be more.
  WorkerMove move;
  WorkerWaits waits;

  void Take(const wire::Heartbeat& message, Duration profile_timeout, Time now);
  /// It is there, and measured.
  bool IsAble() const { return welcomed && seen && !absent && !profile_json.empty(); }
  /// A plan may count on it.
  bool IsCandidate() const { return IsAble() && !draining; }
};

/// A worker that is to be given up, and why.
struct Loss {
  std::string worker;
  std::string reason;
  /// Its process may begin anew and join. Not where it would fail again, or fight for its name.
  bool rejoins = true;
  std::vector<std::string> accusers = {};  ///< Who reported it.
};

}  // namespace heddle::elastic
