/// \file
/// One end of a handshake on the loop, over a transport that the test controls; the test plays the
/// peer.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "comm/endpoint/session.h"

namespace heddle::comm {

inline constexpr Duration kPatience = std::chrono::minutes(1);
inline constexpr Duration kShort = std::chrono::milliseconds(20);

/// The calls that the transport got, and the results that it and its setups are to return.
struct Wishes {
  UniqueFd dialled;  ///< The socket that Dial returns.
  Status dial_status;
  std::function<Result<std::unique_ptr<Connection>>()> advance;
  std::optional<SetupOptions> begun;
  std::atomic<int> advanced = 0;
};

struct NoConnection final : Connection {
  ConnectionInfo info() override { return {.transport = "tcp"}; }
  Result<size_t> Write(std::span<const iovec> /*parts*/) override { return size_t{0}; }
  Result<size_t> Read(std::span<std::byte> /*buffer*/) override { return size_t{0}; }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override { return {}; }
  void Close(Ending /*how*/) override {}
};

class WishedSetup final : public ConnectionSetup {
 public:
  WishedSetup(UniqueFd socket, Wishes& wishes) : socket_(std::move(socket)), wishes_(wishes) {}
  int fd() const override { return socket_.get(); }
  Result<std::unique_ptr<Connection>> Advance() override {
    ++wishes_.advanced;
    std::byte byte{};
    [[maybe_unused]] const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    return wishes_.advance();
  }

 private:
  const UniqueFd socket_;
  Wishes& wishes_;
};

class WishedTransport final : public Transport {
 public:
  explicit WishedTransport(Wishes& wishes) : Transport("tcp"), wishes_(wishes) {}
  std::string address() const override { return ""; }
  std::vector<Listener> listeners() const override { return {}; }
  std::vector<Route> RoutesTo(const AddressParts& /*own*/,
                              const AddressParts& /*peer*/,
                              size_t /*number*/) const override {
    return {};
  }
  Result<UniqueFd> Dial(const Route& /*route*/) const override {
    if (!wishes_.dial_status.ok()) {
      return wishes_.dial_status;
    }
    return std::move(wishes_.dialled);
  }
  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket,
                                         const SetupOptions& options) const override {
    wishes_.begun = options;
    return std::make_unique<WishedSetup>(std::move(socket), wishes_);
  }

 private:
  Wishes& wishes_;
};

inline Result<std::unique_ptr<Connection>> Made() {
  return std::unique_ptr<Connection>(std::make_unique<NoConnection>());
}
inline Result<std::unique_ptr<Connection>> NotYet() {
  return std::unique_ptr<Connection>();
}

inline Hello SomeHello() {
  Hello hello;
  hello.traffic_class = 1;
  hello.generation = 3;
  hello.source = 1;
  hello.target = 2;
  hello.job = Sha256("job");
  hello.nonce = MakeNonce();
  return hello;
}
inline Identity Self(bool tls = false) {
  return {.job = Sha256("job"), .secret = "secret", .tls = tls};
}

class Ends : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
    int ends[2] = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own_.Reset(ends[0]);
    peer_.Reset(ends[1]);
    wishes_.advance = Made;
  }
  void TearDown() override { loop_->Stop(); }

  void On(const std::function<void()>& function) {
    std::atomic<bool> done = false;
    loop_->Post([&] {
      function();
      done.store(true);
    });
    while (!done.load()) {
      std::this_thread::yield();
    }
  }
  template <typename T>
  void Tell(const T& message, size_t bytes = sizeof(T)) {
    ASSERT_EQ(::send(peer_.get(), &message, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  template <typename T>
  T Hear() {
    T message{};
    pollfd ready{.fd = peer_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&ready, 1, 60'000), 1);
    EXPECT_EQ(::recv(peer_.get(), &message, sizeof(message), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(message)));
    return message;
  }
  /// Whether the other end has closed the socket, and sent nothing before.
  bool HearsTheEnd() {
    pollfd ready{.fd = peer_.get(), .events = POLLIN, .revents = 0};
    std::byte byte{};
    return ::poll(&ready, 1, 60'000) == 1 && ::recv(peer_.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }

  std::shared_ptr<EventLoop> loop_;
  Wishes wishes_;
  WishedTransport transport_{wishes_};
  UniqueFd own_;
  UniqueFd peer_;
};

}  // namespace heddle::comm
