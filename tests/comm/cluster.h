/// \file
/// A group of workers as threads of one process, each with its own endpoint, over shared memory,
/// TCP, RDMA or a mixture.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "metrics/registry.h"
#include "tests/support/sanitized.h"

namespace heddle::comm {

enum class Media { kShm, kTcp, kMixed, kVerbs, kMixedVerbs, kTls };

inline std::string MediaName(Media media) {
  constexpr const char* kNames[] = {"shm", "tcp", "mixed", "verbs", "mixed_verbs", "tls"};
  return kNames[static_cast<size_t>(media)];
}

/// The RDMA device to test with; empty: none.
inline std::string RdmaDevice() {
  const char* device = std::getenv("HEDDLE_TEST_RDMA");
  return device == nullptr ? "" : device;
}

/// What the suites run over: `plain`, and RDMA where there is a device.
inline std::vector<Media> MediaHere(std::vector<Media> plain, bool mixed) {
  if (!RdmaDevice().empty()) {
    plain.push_back(Media::kVerbs);
    if (mixed) {
      plain.push_back(Media::kMixedVerbs);
    }
  }
  return plain;
}

/// Mixed: the even ranks share memory, pairs with an odd rank use TCP; with RDMA, those pairs use
/// it save where a rank is divisible by three.
inline bool UsesShm(Media media, int rank) {
  return media == Media::kShm ||
         ((media == Media::kMixed || media == Media::kMixedVerbs) && rank % 2 == 0);
}
inline bool UsesVerbs(Media media, int rank) {
  return media == Media::kVerbs || (media == Media::kMixedVerbs && rank % 3 != 0);
}
inline std::string TransportOf(Media media, int rank, int peer) {
  return UsesShm(media, rank) && UsesShm(media, peer)       ? "shm"
         : UsesVerbs(media, rank) && UsesVerbs(media, peer) ? "verbs"
                                                            : "tcp";
}

inline EndpointOptions OptionsFor(Media media, int rank, metrics::Registry* registry) {
  EndpointOptions options;
  options.worker = "worker-" + std::to_string(rank);
  options.job = "job";
  options.secret = "secret";
  options.allow_shm = UsesShm(media, rank);
  options.allow_verbs = UsesVerbs(media, rank);
  options.rdma_devices = options.allow_verbs ? RdmaDevice() : "";
  options.tls = media == Media::kTls;
  options.tcp_streams = 1 + rank % 3;  // A pair has the smaller number.
  options.metrics = registry;
  return options;
}

/// Owns the endpoints; generations are formed by Run.
class Cluster {
 public:
  using Body = std::function<void(int rank, Communicator& communicator)>;

  Cluster(int size, Media media, double link_bytes_per_second = 0)
      : registries_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      EndpointOptions options = OptionsFor(media, rank, &registries_[static_cast<size_t>(rank)]);
      options.link_bytes_per_second = link_bytes_per_second;
      auto endpoint = Endpoint::Create(options);
      EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
      endpoints_.push_back(*std::move(endpoint));
    }
  }

  static std::string Name(int rank) { return "worker-" + std::to_string(rank); }
  int size() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& endpoint(int rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  metrics::Registry& registry(int rank) { return registries_[static_cast<size_t>(rank)]; }

  /// Group options of `rank` in which everyone is everyone's peer.
  GroupOptions Options(int rank, int64_t generation) const {
    GroupOptions options;
    options.generation = generation;
    options.rank = rank;
    options.operation_timeout = std::chrono::seconds(20);
    for (int other = 0; other < size(); ++other) {
      options.members.push_back({Name(other), endpoints_[static_cast<size_t>(other)]->address()});
      if (other != rank) {
        options.peers.push_back(other);
      }
    }
    return options;
  }

  /// Connects all workers in `generation` and runs `body` on each, in a thread of its own.
  void Run(int64_t generation, const Body& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([this, rank, generation, &body] {
        auto communicator =
            endpoint(rank).Connect(Options(rank, generation), After(std::chrono::seconds(10)));
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
};

/// How many times slower than a machine of today this one is, by its own account: an emulated one.
inline int MachineSlowdown() {
  const char* text = std::getenv("HEDDLE_TEST_SLOWDOWN");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

/// What "at once" means on a shared machine; sanitizers slow everything down.
inline const int kSlowdown = (kSanitized ? 10 : 1) * MachineSlowdown();
/// For tests that leave a process without descriptors: the sanitizers' own checks open a pipe.
inline constexpr const char* kSanitizerNeedsDescriptors =
    "a sanitizer's checks need descriptors of their own";
/// A busy machine may deny a thread its turn: a bound on time is met if one of this many attempts
/// meets it.
inline constexpr int kAttempts = 5;

template <typename T>
std::span<std::byte> RawOf(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}
template <typename T>
std::span<const std::byte> RawOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace heddle::comm
