/// \file
/// Members of a group in one process, joined by wires that a test can cut at any byte or watch.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/system/unique_fd.h"
#include "comm/endpoint/communicator_impl.h"
#include "comm/group/group.h"
#include "comm/stream/event_loop.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {

/// The faults of one end of a wire, or of several ends that share them.
struct WireFate {
  std::mutex mutex;  ///< Held during a write.
  /// The number of this end's written bytes that still arrive; all later ones are lost, without an
  /// error.
  std::atomic<int64_t> left = INT64_MAX;
  /// Whether nothing arrives at this end any more once a byte was lost.
  std::atomic<bool> deaf = false;
  std::atomic<Time> cut_at{Time()};  ///< When the first byte was lost.
  /// Called with the buffers that this end is to write. False: there is no room at this moment.
  std::function<bool(std::span<const iovec>)> may_write;
  DescriptorPassing* descriptors = nullptr;  ///< Passes this end's descriptors; outlives it.

  void Cut() {
    left.store(0);
    Time none;
    cut_at.compare_exchange_strong(none, Now());
  }
  bool silent() const { return cut_at.load() != Time(); }
};

class Wire final : public Connection {
 public:
  Wire(UniqueFd socket, std::shared_ptr<WireFate> fate)
      : socket_(std::move(socket)),
        fate_(std::move(fate)) {}

  ConnectionInfo info() override { return {.transport = "tcp", .descriptors = fate_->descriptors}; }

  Result<size_t> Write(std::span<const iovec> parts) override {
    if (fate_->may_write && !fate_->may_write(parts)) {
      return size_t{0};
    }
    const std::lock_guard lock(fate_->mutex);
    size_t size = 0;
    std::vector<iovec> arriving;
    auto left = static_cast<size_t>(fate_->left.load());
    for (const iovec& part : parts) {
      size += part.iov_len;
      if (left > 0) {
        arriving.push_back({.iov_base = part.iov_base, .iov_len = std::min(part.iov_len, left)});
        left -= arriving.back().iov_len;
      }
    }
    if (!arriving.empty()) {
      msghdr message{};
      message.msg_iov = arriving.data();
      message.msg_iovlen = arriving.size();
      const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        return size_t{0};
      }
      if (sent < 0) {
        return UnavailableError("write: {}", ErrnoError(errno, "wire").message());
      }
      if (fate_->left.fetch_sub(sent) > sent) {
        return static_cast<size_t>(sent);
      }
    }
    fate_->Cut();
    return size;
  }

  Result<size_t> Read(std::span<std::byte> buffer) override {
    if (hears_nothing()) {
      return size_t{0};
    }
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) {
      return static_cast<size_t>(got);
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return size_t{0};
    }
    return UnavailableError("the peer closed the connection");
  }

  std::array<Watch, 2> Watches(bool want_read, bool want_write) override {
    const uint32_t in = want_read && !hears_nothing() ? EPOLLIN | EPOLLRDHUP : 0U;
    return {Watch{.fd = socket_.get(), .events = in | (want_write ? EPOLLOUT : 0U)}, Watch{}};
  }
  Watch SleepOn(bool want_write) const override {
    const uint32_t in = hears_nothing() ? 0U : EPOLLIN;
    return {.fd = socket_.get(), .events = in | (want_write ? EPOLLOUT : 0U)};
  }
  void Close(Ending how) override {
    if (how == Ending::kWriting) {
      ::shutdown(socket_.get(), SHUT_WR);
    } else {
      socket_.Reset();
    }
  }

 private:
  bool hears_nothing() const { return fate_->deaf.load() && fate_->silent(); }

  UniqueFd socket_;
  const std::shared_ptr<WireFate> fate_;
};

/// A group whose members are joined by wires. Thread: one caller; each communicator has its own.
class WiredGroup {
 public:
  /// The faults of the wire on which the member `from` writes to the member `to`.
  using FateOf = std::function<std::shared_ptr<WireFate>(int from, int to)>;

  /// `diagnose`: the value of GroupOptions::diagnose_calls.
  WiredGroup(int size, Duration timeout, const FateOf& fate_of, bool diagnose = true) {
    GroupOptions options;
    options.diagnose_calls = diagnose;
    options.generation = 1;
    options.operation_timeout = timeout;
    for (int rank = 0; rank < size; ++rank) {
      // Members that pass descriptors are on one host.
      const bool together = fate_of(0, 1)->descriptors != nullptr;
      options.members.push_back(
          {.name = Name(rank), .address = together ? "heddle1;host=h;shm=s" : ""});
      auto loop = EventLoop::Create();
      EXPECT_TRUE(loop.ok());
      loops_.push_back(*std::move(loop));
    }
    for (int rank = 0; rank < size; ++rank) {
      GroupOptions own = options;
      own.rank = rank;
      for (int peer = 0; peer < size; ++peer) {
        if (peer != rank) {
          own.peers.push_back(peer);
        }
      }
      groups_.push_back(std::make_shared<Group>(loops_[static_cast<size_t>(rank)], std::move(own),
                                                std::make_shared<SharedRegions>(nullptr)));
    }
    for (int lower = 0; lower < size; ++lower) {
      for (int higher = lower + 1; higher < size; ++higher) {
        for (const TrafficClass traffic_class : kEachTrafficClass) {
          int ends[2] = {};
          EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
          Attach(lower, higher, traffic_class, UniqueFd(ends[0]), fate_of(lower, higher));
          Attach(higher, lower, traffic_class, UniqueFd(ends[1]), fate_of(higher, lower));
        }
      }
    }
    for (const auto& group : groups_) {
      EXPECT_TRUE(group->WaitFormed(After(kAmple)).ok());
      communicators_.push_back(MakeCommunicator(group));
    }
  }
  ~WiredGroup() {
    communicators_.clear();
    open_->WaitForNone(After(kAmple));
    for (const auto& loop : loops_) {
      loop->Stop();
    }
  }
  WiredGroup(const WiredGroup&) = delete;
  WiredGroup& operator=(const WiredGroup&) = delete;

  static std::string Name(int rank) { return "worker-" + std::to_string(rank); }
  Communicator& of(int rank) { return *communicators_[static_cast<size_t>(rank)]; }

 private:
  void Attach(int rank,
              int peer,
              TrafficClass traffic_class,
              UniqueFd socket,
              std::shared_ptr<WireFate> fate) {
    ChannelOptions options;
    options.peer = peer;
    options.traffic_class = traffic_class;
    options.peer_name = Name(peer);
    options.generation = 1;
    options.operation_timeout = groups_[static_cast<size_t>(rank)]->options().operation_timeout;
    options.outgoing = options.incoming = std::make_shared<TokenBucket>();
    options.sent_bytes = options.received_bytes = &bytes_;
    options.lost = &lost_;
    options.open = open_;
    groups_[static_cast<size_t>(rank)]->Attach(
        std::make_unique<Wire>(std::move(socket), std::move(fate)), std::move(options));
  }

  metrics::Counter bytes_;
  metrics::Counter lost_;
  const std::shared_ptr<OpenCount> open_ = std::make_shared<OpenCount>();
  std::vector<std::shared_ptr<EventLoop>> loops_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace heddle::comm
