// From one authenticated socket to a connection over several: who agrees to what, what the listener
// lets in, and a listener that cannot be reached.
#include "comm/transport/tcp/tcp_setup.h"

#include <cstring>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "comm/transport/ip_socket.h"

namespace heddle::comm {
namespace {

struct TcpHello {
  uint32_t magic = 0x31435448;
  uint16_t streams = 1;
  uint16_t port = 0;
  Digest nonce{};
};
struct StripeHello {
  Digest proof{};
  uint32_t number = 0;
};

Digest Key() {
  return Sha256("the connection's key");
}

/// HMAC-SHA256 of the key over the nonce and the number.
StripeHello Prove(const Digest& key, const Digest& nonce, uint32_t number) {
  Bytes message(nonce.begin(), nonce.end());
  const auto bytes = std::as_bytes(std::span(&number, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
  return {.proof = Hmac({reinterpret_cast<const char*>(key.data()), key.size()}, message),
          .number = number};
}

TcpSetupOptions Streams(int streams) {
  return {.streams = streams, .own = "127.0.0.1:0", .key = Key()};
}

/// A connected pair of sockets on loopback.
struct Pair {
  Pair() {
    auto listener = ListenTcp("127.0.0.1");
    EXPECT_TRUE(listener.ok());
    auto dialled = DialTcp(own, listener->address);
    EXPECT_TRUE(dialled.ok());
    dialler = *std::move(dialled);
    pollfd ready{.fd = listener->socket.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&ready, 1, -1), 1);
    acceptor.Reset(
        ::accept4(listener->socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  const std::string own = "127.0.0.1:0";
  UniqueFd dialler;
  UniqueFd acceptor;
};

template <typename T>
void Tell(const UniqueFd& socket, const T& value) {
  ASSERT_EQ(::send(socket.get(), &value, sizeof(value), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(value)));
}
template <typename T>
T Receive(const UniqueFd& socket) {
  T value{};
  pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, -1), 1);
  EXPECT_EQ(::recv(socket.get(), &value, sizeof(value), MSG_DONTWAIT),
            static_cast<ssize_t>(sizeof(value)));
  return value;
}

using Made = Result<std::unique_ptr<Connection>>;

/// Whether the setup has a connection, or an error, within `bound`.
bool Goes(ConnectionSetup& setup, Made& made, Duration bound) {
  const Deadline deadline = After(bound);
  do {
    made = setup.Advance();
    if (!made.ok() || *made != nullptr) {
      return true;
    }
    pollfd ready{.fd = setup.fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 20);
  } while (Now() < deadline);
  return false;
}

UniqueFd Reach(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in listener{};
  listener.sin_family = AF_INET;
  listener.sin_port = htons(port);
  listener.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&listener), sizeof(listener)), 0);
  return socket;
}

UniqueFd Knock(uint16_t port, const StripeHello& hello) {
  UniqueFd socket = Reach(port);
  EXPECT_EQ(::send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(hello)));
  return socket;
}

constexpr Duration kLong = std::chrono::minutes(2);
constexpr Duration kShort = std::chrono::milliseconds(100);

TEST(TcpSetupTest, BothUseTheSmallerNumber) {
  for (const auto& [here, there] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 4}, {4, 1}, {3, 8}}) {
    Pair pair;
    const auto dialler =
        MakeTcpSetup(std::move(pair.dialler), TrafficClass::kBulk, true, Streams(here));
    const auto acceptor =
        MakeTcpSetup(std::move(pair.acceptor), TrafficClass::kBulk, false, Streams(there));
    Made one = std::unique_ptr<Connection>();
    Made other = std::unique_ptr<Connection>();
    const Deadline deadline = After(kLong);
    while (Now() < deadline && !(one.ok() && *one && other.ok() && *other)) {
      if (!*one) {
        Goes(*dialler, one, {});
      }
      if (!*other) {
        Goes(*acceptor, other, {});
      }
      ASSERT_TRUE(one.ok() && other.ok());
    }
    ASSERT_TRUE(*one && *other);
    const std::byte value{42};
    const iovec part{.iov_base = const_cast<std::byte*>(&value), .iov_len = 1};
    EXPECT_EQ(*(*one)->Write(std::span(&part, 1)), 1U);
    std::byte read{};
    while (Now() < deadline && *(*other)->Read(std::span(&read, 1)) == 0) {
    }
    EXPECT_EQ(read, value);
  }
}

/// An acceptor that would use one socket more than the dialler, and its listener.
struct Greeted {
  Pair pair;
  std::unique_ptr<ConnectionSetup> acceptor;
  TcpHello hello;
};
Greeted Greet(int streams) {
  Greeted greeted;
  greeted.acceptor = MakeTcpSetup(std::move(greeted.pair.acceptor), TrafficClass::kBulk, false,
                                  Streams(streams + 1));
  Tell(greeted.pair.dialler, TcpHello{.streams = static_cast<uint16_t>(streams)});
  Made made = std::unique_ptr<Connection>();
  EXPECT_FALSE(Goes(*greeted.acceptor, made, kShort));
  greeted.hello = Receive<TcpHello>(greeted.pair.dialler);
  return greeted;
}

TEST(TcpSetupTest, StrangersAtTheListenerChangeNothing) {
  const Greeted greeted = Greet(3);
  const auto& [pair, acceptor, hello] = greeted;
  Made made = std::unique_ptr<Connection>();
  EXPECT_EQ(hello.streams, 3);
  const uint16_t port = hello.port;
  std::vector<UniqueFd> guests;
  const auto knock = [&guests, port](const StripeHello& said) {
    guests.push_back(Knock(port, said));
  };
  for (const uint32_t number : {0U, 1U, 2U, 3U}) {
    knock(Prove(Sha256("another key"), hello.nonce, number));
    knock(Prove(Key(), Sha256("another nonce"), number));
  }
  StripeHello other = Prove(Key(), hello.nonce, 1);
  other.number = 2;
  knock(other);
  knock(Prove(Key(), hello.nonce, 0));
  knock(Prove(Key(), hello.nonce, 3));
  EXPECT_FALSE(Goes(*acceptor, made, kShort));
  knock(Prove(Key(), hello.nonce, 2));
  EXPECT_FALSE(Goes(*acceptor, made, kShort));
  knock(Prove(Key(), hello.nonce, 2));  // Again.
  Tell(pair.dialler, std::byte{3});
  EXPECT_FALSE(Goes(*acceptor, made, kShort));
  knock(Prove(Key(), hello.nonce, 1));
  EXPECT_TRUE(Goes(*acceptor, made, kLong));
  EXPECT_TRUE(made.ok() && *made);
  EXPECT_EQ(Receive<std::byte>(pair.dialler), std::byte{3});
}

TEST(TcpSetupTest, ManySilentStrangersDoNotKeepTheOthersOut) {
  auto [pair, acceptor, hello] = Greet(2);
  Made made = std::unique_ptr<Connection>();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(Reach(hello.port));
  }
  EXPECT_FALSE(Goes(*acceptor, made, kShort));
  const UniqueFd genuine = Knock(hello.port, Prove(Key(), hello.nonce, 1));
  Tell(pair.dialler, std::byte{2});
  EXPECT_TRUE(Goes(*acceptor, made, kLong));
  EXPECT_EQ(Receive<std::byte>(pair.dialler), std::byte{2});
}

// The others were lost on their way: the dialler believes them open, and learns that they are not.
TEST(TcpSetupTest, SocketsThatDoNotComeCostThemselvesAlone) {
  auto [pair, acceptor, hello] = Greet(3);
  Made made = std::unique_ptr<Connection>();
  Tell(pair.dialler, std::byte{3});
  EXPECT_TRUE(Goes(*acceptor, made, kLong));
  EXPECT_TRUE(made.ok() && *made) << made.status().ToString();
  EXPECT_EQ(Receive<std::byte>(pair.dialler), std::byte{1});
}

TEST(TcpSetupTest, AListenerThatCannotBeReachedCostsTheFurtherSocketsAlone) {
  UniqueFd nobody(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // Bound, does not listen.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(nobody.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(nobody.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Pair pair;
  const auto dialler = MakeTcpSetup(std::move(pair.dialler), TrafficClass::kBulk, true, Streams(4));
  Made made = std::unique_ptr<Connection>();
  EXPECT_FALSE(Goes(*dialler, made, {}));
  EXPECT_EQ(Receive<TcpHello>(pair.acceptor).streams, 4);
  Tell(pair.acceptor, TcpHello{.streams = 4, .port = ntohs(address.sin_port)});
  EXPECT_FALSE(Goes(*dialler, made, kShort));
  EXPECT_EQ(Receive<std::byte>(pair.acceptor), std::byte{1});
  Tell(pair.acceptor, std::byte{1});
  EXPECT_TRUE(Goes(*dialler, made, kLong));
  ASSERT_TRUE(made.ok() && *made) << made.status().ToString();
  Tell(pair.acceptor, std::byte{7});
  std::byte read{};
  while (*(*made)->Read(std::span(&read, 1)) == 0) {
  }
  EXPECT_EQ(read, std::byte{7});
}

// Neither end sleeps over it, nor looks for it without a pause.
TEST(TcpSetupTest, APeerThatEndsIsNoticedAtOnce) {
  for (const bool announced : {false, true}) {
    Pair pair;
    const auto acceptor =
        MakeTcpSetup(std::move(pair.acceptor), TrafficClass::kBulk, false, Streams(3));
    Made made = std::unique_ptr<Connection>();
    Tell(pair.dialler, TcpHello{.streams = 3});
    if (announced) {
      Tell(pair.dialler, std::byte{3});
    }
    EXPECT_FALSE(Goes(*acceptor, made, kShort));
    pollfd ready{.fd = acceptor->fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&ready, 1, 20), 0) << announced;
    pair.dialler.Reset();
    EXPECT_EQ(::poll(&ready, 1, 1000), 1) << announced;
    EXPECT_TRUE(Goes(*acceptor, made, kShort));
    EXPECT_EQ(made.status().code(), StatusCode::kUnavailable);
  }
}

TEST(TcpSetupTest, WhatHasAnotherFormIsRefused) {
  for (const TcpHello& hello :
       {TcpHello{.magic = 1}, TcpHello{.streams = 0}, TcpHello{.streams = 3}}) {
    Pair pair;
    const auto dialler =
        MakeTcpSetup(std::move(pair.dialler), TrafficClass::kBulk, true, Streams(2));
    Tell(pair.acceptor, hello);
    Made made = std::unique_ptr<Connection>();
    EXPECT_TRUE(Goes(*dialler, made, kLong));
    EXPECT_EQ(made.status().code(), StatusCode::kDataLoss);
  }
  Pair pair;
  const auto acceptor =
      MakeTcpSetup(std::move(pair.acceptor), TrafficClass::kBulk, false, Streams(4));
  Tell(pair.dialler, TcpHello{.streams = 3});
  Tell(pair.dialler, std::byte{2});
  Made made = std::unique_ptr<Connection>();
  EXPECT_TRUE(Goes(*acceptor, made, kLong));
  EXPECT_EQ(made.status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace heddle::comm
