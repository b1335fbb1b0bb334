/// \file
/// What the coordinator knows of one worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

  wire::Standing standing = wire::STANDING_IDLE;
  int64_t standing_generation = 0;
  int64_t applied_step = 0;
  int64_t progress = 0;               ///< As it counts.
  std::optional<Time> progressed_at;  ///< When that was last heard to be more.
  bool waits = false;                 ///< For others.

  void Take(const wire::Heartbeat& message, Duration profile_timeout, Time now) {
    applied_step = message.applied_step();
    standing = message.standing();
    waits = message.waits();
    if (message.progress() > progress) {
      progress = message.progress();
      progressed_at = now;
      if (profiling_until) {
        profiling_until = now + profile_timeout;
      }
    }
  }
  /// A plan may count on it.
  bool IsCandidate() const {
    return welcomed && seen && !absent && !draining && !profile_json.empty();
  }
};

/// A worker that is to be given up, and why.
struct Loss {
  std::string worker;
  std::string reason;
  /// Its process may begin anew and join. Not where it would fail again, or fight for its name.
  bool rejoins = true;
};

}  // namespace heddle::elastic
