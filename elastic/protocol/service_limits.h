/// \file
/// Limits of connections and processes, where no job is known yet whose lease could say them: each
/// a multiple of the lease that a job has by default.
#pragma once

#include <array>

#include "base/clock.h"

namespace heddle::elastic {

inline constexpr Duration kDefaultLease = std::chrono::seconds(3);

/// A worker's attempt to reach a coordinator.
inline constexpr Duration kConnectTimeout = kDefaultLease;
/// A connection to the coordinator says its first byte.
inline constexpr Duration kSpeakWithin = kDefaultLease;
/// A call of a connection that has spoken is let in.
inline constexpr Duration kNamedWithin = kDefaultLease * 5 / 3;
/// A stream says its Hello.
inline constexpr Duration kHelloWithin = kDefaultLease * 5 / 3;
/// A call of the command line is answered.
inline constexpr Duration kCallTimeout = kDefaultLease * 10 / 3;
/// A submitted job is stored: below the command line's own bound.
inline constexpr Duration kStoredWithin = kDefaultLease * 5 / 3;
/// The workers' streams close when a job has ended.
inline constexpr Duration kStreamsCloseWithin = kDefaultLease;
/// A silent peer is pinged after so long, and given up when the ping is not answered in as long
/// again.
inline constexpr Duration kKeepalive = kDefaultLease * 2 / 3;
/// A new worker hears a word of the coordinator.
inline constexpr Duration kWelcomeTimeout = kDefaultLease * 20;
/// A member of etcd answers a call, or the next one is asked.
inline constexpr Duration kEtcdAnswerWithin = kDefaultLease / 3;
/// One of etcd's members answers a call.
inline constexpr Duration kEtcdCallWithin = kDefaultLease;
/// A leader that ends gives its lease back.
inline constexpr Duration kEtcdGiveBackWithin = kDefaultLease / 6;

struct ServiceLimit {
  const char* name;
  Duration value;
  const char* meaning;
};

inline constexpr std::array kServiceLimits = {
    ServiceLimit{"connect_timeout", kConnectTimeout, "a worker's attempt to reach a coordinator"},
    ServiceLimit{"speak_within", kSpeakWithin, "a connection says its first byte"},
    ServiceLimit{"named_within", kNamedWithin, "a call of a connection that has spoken is let in"},
    ServiceLimit{"hello_within", kHelloWithin, "a worker's stream says who it is"},
    ServiceLimit{"keepalive", kKeepalive, "a silent peer is pinged, and answers in as long again"},
    ServiceLimit{"call_timeout", kCallTimeout, "a call of the command line is answered"},
    ServiceLimit{"stored_within", kStoredWithin, "a submitted job is stored"},
    ServiceLimit{"streams_close_within", kStreamsCloseWithin,
                 "workers' streams close when the job has ended"},
    ServiceLimit{"welcome_timeout", kWelcomeTimeout, "a new worker hears of a coordinator"},
    ServiceLimit{"etcd_answer_within", kEtcdAnswerWithin, "a member of etcd answers a call"},
    ServiceLimit{"etcd_call_within", kEtcdCallWithin, "one of etcd's members answers a call"},
    ServiceLimit{"etcd_give_back_within", kEtcdGiveBackWithin,
                 "a leader that ends gives its lease back"}};

}  // namespace heddle::elastic
