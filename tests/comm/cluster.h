/// \file
/// A group of workers as threads of one process, each with its own endpoint, over any transport or
/// a mixture of them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/cost/transport_traits.h"
#include "metrics/registry.h"
#include "tests/support/sanitized.h"

namespace heddle::comm {

/// The time limit for what is expected to happen: however busy the machine is, only a fault exceeds
/// it.
inline constexpr Duration kAmple = std::chrono::minutes(1);

/// The RDMA device to test with; empty: none.
inline std::string RdmaDevice() {
  const char* device = std::getenv("HEDDLE_TEST_RDMA");
  return device == nullptr ? "" : device;
}

/// The transports that each rank of a group opens, which decide how its pairs are joined.
struct Media {
  std::string name;
  std::function<std::vector<std::string>(int rank)> opens;  ///< The transports' names, best first.
  bool tls = false;

  static const Media kShm, kTcp, kMixed, kVerbs, kMixedVerbs, kTls;

  bool operator==(const Media& other) const { return name == other.name; }
  friend void PrintTo(const Media& media, std::ostream* stream) { *stream << media.name; }
};

/// Each rank opens one transport, and beside it the transport that joins any two workers.
inline Media Only(const std::string& transport) {
  return {.name = transport, .opens = [transport](int /*rank*/) {
            std::vector<std::string> names{transport};
            if (transport != UniversalTransport()) {
              names.push_back(UniversalTransport());
            }
            return names;
          }};
}

inline const Media Media::kShm = Only("shm");
inline const Media Media::kTcp = Only("tcp");
inline const Media Media::kVerbs = Only("verbs");
/// Pairs of even ranks use shared memory, pairs with an odd rank TCP.
inline const Media Media::kMixed = {.name = "mixed", .opens = [](int rank) {
                                      return rank % 2 == 0 ? std::vector<std::string>{"shm", "tcp"}
                                                           : std::vector<std::string>{"tcp"};
                                    }};
/// Pairs of even ranks use shared memory. Pairs with an odd rank use RDMA, or TCP where one of the
/// ranks is divisible by three.
inline const Media Media::kMixedVerbs = {.name = "mixed_verbs", .opens = [](int rank) {
                                           std::vector<std::string> names{"tcp"};
                                           if (rank % 3 != 0) {
                                             names.insert(names.begin(), "verbs");
                                           }
                                           if (rank % 2 == 0) {
                                             names.insert(names.begin(), "shm");
                                           }
                                           return names;
                                         }};
inline const Media Media::kTls = {.name = "tls", .opens = Media::kTcp.opens, .tls = true};

inline std::string MediaName(const Media& media) {
  return media.name;
}

struct MediaSet {
  bool mixed = false;
  bool tls = false;
};
/// The media over which the test suites run: every linked transport, RDMA only where there is a
/// device, and the media that `set` adds.
inline std::vector<Media> MediaHere(const MediaSet& set) {
  std::vector<Media> media;
  for (const TransportTraits& traits : DeclaredTransports()) {
    if (!traits.optional || !RdmaDevice().empty()) {
      media.push_back(Only(traits.name));
    }
  }
  if (set.mixed) {
    media.push_back(Media::kMixed);
    if (!RdmaDevice().empty()) {
      media.push_back(Media::kMixedVerbs);
    }
  }
  if (set.tls) {
    media.push_back(Media::kTls);
  }
  return media;
}

inline std::string TransportOf(const Media& media, int rank, int peer) {
  const std::vector<std::string> theirs = media.opens(peer);
  for (const std::string& name : media.opens(rank)) {
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) {
      return name;
    }
  }
  return "none";
}

inline EndpointOptions OptionsFor(const Media& media, int rank, metrics::Registry* registry) {
  EndpointOptions options;
  options.config = {.worker = "worker-" + std::to_string(rank),
                    .job = "job",
                    .secret = "secret",
                    .tls = media.tls};
  options.open = media.opens(rank);
  options.transport_options["verbs"]["devices"] = RdmaDevice();
  // A pair has the smaller number.
  options.transport_options["tcp"]["streams"] = std::to_string(1 + rank % 3);
  options.metrics = registry;
  return options;
}

/// A group of workers, of which it owns the endpoints. Run forms a generation of them.
class Cluster {
 public:
  using Body = std::function<void(int rank, Communicator& communicator)>;

  Cluster(int size, const Media& media, double link_bytes_per_second = 0)
      : registries_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      EndpointOptions options = OptionsFor(media, rank, &registries_[static_cast<size_t>(rank)]);
      options.link_bytes_per_second = link_bytes_per_second;
      auto endpoint = Endpoint::Create(options);
      EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
      endpoints_.push_back(*std::move(endpoint));
      configs_.push_back(options.config);
    }
  }

  static std::string Name(int rank) { return "worker-" + std::to_string(rank); }
  int size() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& endpoint(int rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  /// Changes the configuration of the endpoint of `rank`.
  Status Configure(int rank, const std::function<void(EndpointConfig& config)>& change) {
    EndpointConfig config = configs_[static_cast<size_t>(rank)];
    change(config);
    HEDDLE_RETURN_IF_ERROR(endpoint(rank).Configure(config));
    configs_[static_cast<size_t>(rank)] = config;
    return Status::Ok();
  }
  void SetTls(int rank) {
    EXPECT_TRUE(Configure(rank, [](EndpointConfig& config) { config.tls = true; }).ok());
  }
  Status SetTransports(int rank, const std::vector<std::string>& names) {
    return Configure(rank, [&](EndpointConfig& config) { config.transports = names; });
  }
  metrics::Registry& registry(int rank) { return registries_[static_cast<size_t>(rank)]; }

  /// The group options of `rank`, in which all members are peers of each other.
  GroupOptions Options(int rank, int64_t generation) const {
    GroupOptions options;
    options.generation = generation;
    options.rank = rank;
    options.operation_timeout = kAmple;
    for (int other = 0; other < size(); ++other) {
      options.members.push_back({Name(other), endpoints_[static_cast<size_t>(other)]->address()});
      if (other != rank) {
        options.peers.push_back(other);
      }
    }
    return options;
  }

  /// Connects all workers in `generation`, and then runs `body` on each, in a thread of its own: one
  /// that aborts at once must not end another's Connect.
  void Run(int64_t generation, const Body& body) {
    std::latch tried(size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([this, rank, generation, &body, &tried] {
        auto communicator = endpoint(rank).Connect(Options(rank, generation), After(kAmple));
        tried.arrive_and_wait();
        ASSERT_TRUE(communicator.ok()) << Name(rank) << ": " << communicator.status().ToString();
        body(rank, **communicator);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

 private:
  std::vector<metrics::Registry> registries_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<EndpointConfig> configs_;
};

/// Blocks until `endpoint` waits for a member in `generation`.
inline void ComesToWait(Endpoint& endpoint, int64_t generation) {
  const Deadline deadline = After(kAmple);
  for (AwaitedMembers awaited; awaited.names.empty() || awaited.generation != generation;
       awaited = endpoint.Awaited()) {
    ASSERT_LT(Now(), deadline) << "nobody is waited for";
    std::this_thread::yield();
  }
}

/// The reason to skip tests that use up a process's file descriptors: the sanitizers' own checks
/// open a pipe.
inline constexpr const char* kSanitizerNeedsDescriptors =
    "a sanitizer's checks need descriptors of their own";

template <typename T>
std::span<std::byte> RawOf(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}
template <typename T>
std::span<const std::byte> RawOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace heddle::comm
