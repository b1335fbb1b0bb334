/// \file
/// Time limits of connections and processes that hold before a job and its lease are known. Each is
/// a multiple of a job's default lease.
#pragma once

#include <array>

#include "base/clock.h"

namespace heddle::elastic {

inline constexpr Duration kDefaultLease = std::chrono::seconds(3);

/// A worker's attempt to reach a coordinator takes at most this long.
inline constexpr Duration kConnectTimeout = kDefaultLease;
/// A connection to the coordinator must send its first byte within this time.
inline constexpr Duration kSpeakWithin = kDefaultLease;
/// A connection that has sent a byte must make a call that is let in within this time.
inline constexpr Duration kNamedWithin = kDefaultLease * 5 / 3;
/// A worker's stream must send Hello within this time.
inline constexpr Duration kHelloWithin = kDefaultLease * 5 / 3;
/// A call of the command line must be answered within this time.
inline constexpr Duration kCallTimeout = kDefaultLease * 10 / 3;
/// A submitted job must be stored within this time, which is below kCallTimeout.
inline constexpr Duration kStoredWithin = kDefaultLease * 5 / 3;
/// The workers' streams must close within this time after the job has ended.
inline constexpr Duration kStreamsCloseWithin = kDefaultLease;
/// A silent peer is pinged after this time, and given up if it has not answered after as long
/// again.
inline constexpr Duration kKeepalive = kDefaultLease * 2 / 3;
/// A new worker waits this long for a first answer of the coordinator.
inline constexpr Duration kWelcomeTimeout = kDefaultLease * 20;
/// A member of etcd must answer a call within this time; then the next member is asked.
inline constexpr Duration kEtcdAnswerWithin = kDefaultLease / 3;
/// A call of etcd must be answered by one of its members within this time.
inline constexpr Duration kEtcdCallWithin = kDefaultLease;
/// A leader that ends gives its lease back within this time.
inline constexpr Duration kEtcdGiveBackWithin = kDefaultLease / 6;

/// One limit, for people.
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
