/// \file
/// A group of workers as threads of one process, each with its own endpoint, over shared memory,
/// TCP or both.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "metrics/registry.h"

namespace heddle::comm {

enum class Media { kShm, kTcp, kMixed };

inline std::string MediaName(Media media) {
  return media == Media::kShm ? "shm" : media == Media::kTcp ? "tcp" : "mixed";
}

/// Owns the endpoints; generations are formed by Run.
class Cluster {
 public:
  using Body = std::function<void(int rank, Communicator& communicator)>;

  Cluster(int size, Media media, double link_bytes_per_second = 0)
      : registries_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      EndpointOptions options;
      options.worker = Name(rank);
      options.job = "job";
      options.secret = "secret";
      // Mixed: the even ranks share memory, pairs with an odd rank use TCP.
      options.allow_shm = media == Media::kShm || (media == Media::kMixed && rank % 2 == 0);
      options.link_bytes_per_second = link_bytes_per_second;
      options.metrics = &registries_[static_cast<size_t>(rank)];
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

/// What "at once" means on a shared machine; sanitizers slow everything down.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowdown = 10;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr int kSlowdown = 10;
#else
inline constexpr int kSlowdown = 1;
#endif
#else
inline constexpr int kSlowdown = 1;
#endif
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
