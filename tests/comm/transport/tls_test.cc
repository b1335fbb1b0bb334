// Encrypted connections: what goes through them, what the network sees, and who may not come in.
#include <array>
#include <cstring>
#include <future>
#include <list>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/random.h"
#include "base/system/unique_fd.h"
#include "comm/endpoint/session.h"
#include "comm/stream/frame.h"
#include "comm/transport/tcp/tls_connection.h"
#include "tests/comm/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kHang;
using ::testing::Not;
using Outcome = Result<std::unique_ptr<Connection>>;

struct Sockets {
  Sockets() {
    int ends[2] = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    dialler.Reset(ends[0]);
    acceptor.Reset(ends[1]);
  }
  UniqueFd dialler;
  UniqueFd acceptor;
};

/// Both ends in turns, until each has a connection or an error.
std::array<Outcome, 2> ShakeHands(ConnectionSetup& dialler, ConnectionSetup& acceptor) {
  std::array<ConnectionSetup*, 2> setups{&dialler, &acceptor};
  std::array<Outcome, 2> outcomes{Outcome(nullptr), Outcome(nullptr)};
  for (int round = 0; round < 10; ++round) {
    for (size_t end = 0; end < 2; ++end) {
      if (outcomes[end].ok() && *outcomes[end] == nullptr) {
        outcomes[end] = setups[end]->Advance();
      }
    }
  }
  return outcomes;
}

Digest Key(int which) {
  return Sha256("key " + std::to_string(which));
}

struct Pair {
  explicit Pair(uint64_t records_per_key = kTlsRecordsPerKey) {
    Sockets sockets;
    const int bytes = 32 << 10;
    ::setsockopt(sockets.dialler.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    acceptor_fd = sockets.acceptor.get();
    const auto first = MakeTlsSetup(std::move(sockets.dialler), TrafficClass::kBulk, true, Key(1),
                                    records_per_key);
    const auto second = MakeTlsSetup(std::move(sockets.acceptor), TrafficClass::kBulk, false,
                                     Key(1), records_per_key);
    auto outcomes = ShakeHands(*first, *second);
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok() && *outcome != nullptr) << outcome.status().ToString();
    }
    dialler = *std::move(outcomes[0]);
    acceptor = *std::move(outcomes[1]);
  }
  int acceptor_fd = -1;
  std::unique_ptr<Connection> dialler;
  std::unique_ptr<Connection> acceptor;
};

std::vector<std::byte> RandomBytes(Random& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) {
    byte = static_cast<std::byte>(random.Next() & 0xFF);
  }
  return bytes;
}

/// Sends `data` in pieces of random sizes, in one or two parts, sometimes offering less than a call
/// before did, and reads it in pieces of random sizes.
void Stream(Random& random, Pair& pair, const std::vector<std::byte>& data) {
  std::vector<std::byte> received;
  std::vector<std::byte> buffer(100'000);
  size_t sent = 0;
  bool was_idle = false;
  while (received.size() < data.size()) {
    const size_t offered =
        std::min<size_t>(data.size() - sent, random.Below(random.Below(2) == 0 ? 100 : 300'000));
    const size_t first = offered == 0 ? 0 : random.Below(offered);
    auto* const from = const_cast<std::byte*>(data.data()) + sent;
    const std::array<iovec, 2> parts{iovec{from, first}, iovec{from + first, offered - first}};
    const auto written = pair.dialler->Write(parts);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    ASSERT_LE(*written, offered);
    sent += *written;

    // Whoever would have gone to sleep now must have had nothing to read.
    pollfd readable{.fd = pair.acceptor_fd, .events = POLLIN, .revents = 0};
    const bool asleep = was_idle && ::poll(&readable, 1, 0) == 0;
    const size_t wanted = 1 + random.Below(buffer.size());
    const auto got = pair.acceptor->Read(std::span(buffer).first(wanted));
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_FALSE(asleep && *got > 0) << *got << " bytes that no descriptor tells of";
    received.insert(received.end(), buffer.begin(),
                    buffer.begin() + static_cast<std::ptrdiff_t>(*got));
    ASSERT_LE(received.size(), data.size());
    was_idle = pair.acceptor->PrepareToWait(true, false);
  }
  // What the last offer left out has gone already, and counts as soon as it is offered.
  const iovec rest{const_cast<std::byte*>(data.data()) + sent, data.size() - sent};
  ASSERT_EQ(*pair.dialler->Write(std::span(&rest, 1)), data.size() - sent);
  ASSERT_TRUE(received == data);
}

TEST(TlsConnectionTest, BytesArriveWholeHoweverTheyAreCut) {
  Random random(heddle::testing::TestSeed());
  Pair pair;
  for (int round = 0; round < 5; ++round) {
    Stream(random, pair, RandomBytes(random, 3'000'000));
    std::swap(pair.dialler, pair.acceptor);
    pair.acceptor_fd = pair.acceptor->SleepOn(false).fd;
  }
}

TEST(TlsConnectionTest, KeysAreChangedInTime) {
  Random random(heddle::testing::TestSeed() + 1);
  Pair pair(7);
  for (int round = 0; round < 4; ++round) {
    Stream(random, pair, RandomBytes(random, 2'000'000));
    std::swap(pair.dialler, pair.acceptor);
    pair.acceptor_fd = pair.acceptor->SleepOn(false).fd;
  }
}

TEST(TlsConnectionTest, AKeyServesForSoManyRecordsAndNoMore) {
  // A record of one byte has 22 bytes beside it; the message that changes the key takes 27.
  Pair pair(10);
  std::byte byte{1};
  const iovec part{&byte, 1};
  for (int records = 1; records <= 35; ++records) {
    ASSERT_EQ(*pair.dialler->Write(std::span(&part, 1)), 1u);
    int waiting = 0;
    ASSERT_EQ(::ioctl(pair.acceptor_fd, FIONREAD, &waiting), 0);
    ASSERT_EQ(waiting, 23 * records + 27 * ((records - 1) / 10));
  }
  std::array<std::byte, 100> buffer{};
  EXPECT_EQ(*pair.acceptor->Read(buffer), 35u);
}

TEST(TlsConnectionTest, TheEndComesAfterTheLastByte) {
  Pair pair;
  const std::vector<std::byte> data(40'000, std::byte{7});
  const iovec part{const_cast<std::byte*>(data.data()), data.size()};
  ASSERT_EQ(*pair.dialler->Write(std::span(&part, 1)), data.size());
  pair.dialler->Close(Connection::Ending::kWriting);
  std::vector<std::byte> buffer(100'000);
  ASSERT_EQ(*pair.acceptor->Read(buffer), data.size());
  const auto end = pair.acceptor->Read(buffer);
  EXPECT_EQ(end.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(end.status().message(), "the peer closed the connection");
  EXPECT_EQ(*pair.acceptor->Write(std::span(&part, 1)), data.size()) << "the other way is open";
  EXPECT_EQ(*pair.dialler->Read(buffer), data.size());
  pair.acceptor.reset();  // Without a word.
  EXPECT_EQ(pair.dialler->Read(buffer).status().message(), "the peer closed the connection");
}

TEST(TlsConnectionTest, AnotherKeyIsRefusedAtBothEnds) {
  Sockets sockets;
  const auto dialler = MakeTlsSetup(std::move(sockets.dialler), TrafficClass::kBulk, true, Key(1));
  const auto acceptor =
      MakeTlsSetup(std::move(sockets.acceptor), TrafficClass::kBulk, false, Key(2));
  for (const Outcome& outcome : ShakeHands(*dialler, *acceptor)) {
    EXPECT_EQ(outcome.status().code(), StatusCode::kUnauthenticated) << outcome.status().ToString();
    EXPECT_THAT(outcome.status().message(), HasSubstr("TLS"));
  }
}

TEST(TlsConnectionTest, WhatIsNoTlsIsRefused) {
  FrameHeader frame;
  const std::string plain(reinterpret_cast<const char*>(&frame), sizeof(frame));
  for (const std::string& noise : {plain, std::string("GET / HTTP/1.0\r\n\r\n"),
                                   std::string(100, '\0'), std::string("\x16\x03\x01\xff\xff")}) {
    for (const bool dialled : {false, true}) {
      Sockets sockets;
      const auto setup =
          MakeTlsSetup(std::move(sockets.acceptor), TrafficClass::kBulk, dialled, Key(1));
      ASSERT_EQ(::send(sockets.dialler.get(), noise.data(), noise.size(), 0),
                static_cast<ssize_t>(noise.size()));
      const Outcome outcome = setup->Advance();
      EXPECT_EQ(outcome.status().code(), StatusCode::kUnauthenticated)
          << outcome.status().ToString();
    }
  }
}

/// TLS 1.3 with a certificate that its owner has signed itself, and trust in everyone.
class Certified {
 public:
  Certified() : context_(SSL_CTX_new(TLS_method())) {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    EXPECT_EQ(SSL_CTX_use_certificate(context_, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~Certified() { SSL_CTX_free(context_); }
  Certified(const Certified&) = delete;
  Certified& operator=(const Certified&) = delete;
  SSL* NewEnd(int fd) const {
    SSL* const end = SSL_new(context_);
    SSL_set_fd(end, fd);
    return end;
  }

 private:
  SSL_CTX* const context_;
};

TEST(TlsConnectionTest, CertificatesProveNothing) {
  const Certified certified;
  for (const bool dialled : {false, true}) {
    Sockets sockets;
    SSL* const other = certified.NewEnd(sockets.acceptor.get());
    const auto setup =
        MakeTlsSetup(std::move(sockets.dialler), TrafficClass::kBulk, dialled, Key(1));
    Outcome outcome(nullptr);
    for (int round = 0; round < 10 && outcome.ok(); ++round) {
      outcome = setup->Advance();
      ASSERT_FALSE(outcome.ok() && *outcome != nullptr) << "a stranger came in";
      if (dialled) {
        SSL_accept(other);
      } else {
        SSL_connect(other);
      }
    }
    EXPECT_EQ(outcome.status().code(), StatusCode::kUnauthenticated) << outcome.status().ToString();
    SSL_free(other);
  }
}

TEST(TlsKeyTest, IsHkdfOfTheSecretAndTheHandshake) {
  Hello hello;
  hello.nonce = MakeNonce();
  Challenge challenge;
  challenge.nonce = MakeNonce();
  std::string salt = "heddle-tls";
  salt.append(reinterpret_cast<const char*>(&hello), sizeof(hello));
  salt.append(reinterpret_cast<const char*>(&challenge), sizeof(challenge));
  std::string secret = "secret";
  std::string label = "heddle tls 1.3 psk";
  EVP_PKEY_CTX* const kdf = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  const auto bytes = [](std::string& text) {
    return reinterpret_cast<unsigned char*>(text.data());
  };
  Digest expected{};
  size_t size = expected.size();
  ASSERT_EQ(EVP_PKEY_derive_init(kdf), 1);
  ASSERT_EQ(EVP_PKEY_CTX_set_hkdf_md(kdf, EVP_sha256()), 1);
  ASSERT_EQ(EVP_PKEY_CTX_set1_hkdf_salt(kdf, bytes(salt), static_cast<int>(salt.size())), 1);
  ASSERT_EQ(EVP_PKEY_CTX_set1_hkdf_key(kdf, bytes(secret), static_cast<int>(secret.size())), 1);
  ASSERT_EQ(EVP_PKEY_CTX_add1_hkdf_info(kdf, bytes(label), static_cast<int>(label.size())), 1);
  ASSERT_EQ(EVP_PKEY_derive(kdf, reinterpret_cast<unsigned char*>(expected.data()), &size), 1);
  EVP_PKEY_CTX_free(kdf);
  EXPECT_EQ(DeriveConnectionKey(secret, hello, challenge), expected);
  hello.generation = 1;
  EXPECT_NE(DeriveConnectionKey(secret, hello, challenge), expected) << "of another generation";
}

UniqueFd ListenOnLoopback(std::string& address) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), size), 0);
  EXPECT_EQ(::listen(socket.get(), 16), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  return socket;
}

UniqueFd DialLoopback(Endpoint& endpoint) {
  const std::string address = ParseAddress(endpoint.address())->at("tcp");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}

/// An endpoint's address whose TCP port is another.
std::string WithPort(Endpoint& endpoint, const std::string& tcp) {
  AddressParts parts = *ParseAddress(endpoint.address());
  parts["tcp"] = tcp;
  return FormatAddress(parts);
}

/// Stands between the diallers of an endpoint's port and the endpoint, and keeps what passes.
class Wiretap {
 public:
  /// The byte at `flip_at` of what each dialler sends is changed; -1: none.
  explicit Wiretap(Endpoint& endpoint, int64_t flip_at = -1)
      : endpoint_(endpoint),
        flip_at_(flip_at),
        listener_(ListenOnLoopback(port_)),
        acceptor_([this] { Accept(); }) {}
  ~Wiretap() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (const UniqueFd& socket : sockets_) {
      ::shutdown(socket.get(), SHUT_RDWR);
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Wiretap(const Wiretap&) = delete;
  Wiretap& operator=(const Wiretap&) = delete;

  std::string address() const { return WithPort(endpoint_, port_); }
  std::string heard() {
    const MutexLock lock(mutex_);
    return heard_;
  }

 private:
  void Accept() {
    while (true) {
      const int in = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (in < 0) {
        return;
      }
      sockets_.emplace_back(in);
      sockets_.push_back(DialLoopback(endpoint_));
      const int out = sockets_.back().get();
      threads_.emplace_back([this, in, out] { Pass(in, out, flip_at_); });
      threads_.emplace_back([this, in, out] { Pass(out, in, -1); });
    }
  }
  void Pass(int from, int to, int64_t flip_at) {
    std::vector<char> buffer(100'000);
    int64_t passed = 0;
    while (true) {
      const ssize_t got = ::recv(from, buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        ::shutdown(to, SHUT_WR);
        return;
      }
      if (flip_at >= passed && flip_at < passed + got) {
        buffer[static_cast<size_t>(flip_at - passed)] ^= 1;
      }
      passed += got;
      {
        const MutexLock lock(mutex_);
        heard_.append(buffer.data(), static_cast<size_t>(got));
      }
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t more =
            ::send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (more <= 0) {
          ::shutdown(from, SHUT_RD);
          return;
        }
        sent += more;
      }
    }
  }

  Endpoint& endpoint_;
  const int64_t flip_at_;
  std::string port_;
  const UniqueFd listener_;
  Mutex mutex_;
  std::string heard_ HEDDLE_GUARDED_BY(mutex_);
  std::list<UniqueFd> sockets_;  // The acceptor's until it has ended, like the threads.
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

/// Connects two workers, rank 0 by way of `address`, and runs `body` on both.
void RunThrough(Cluster& cluster, const std::string& address, const Cluster::Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = cluster.Options(rank, 1);
      options.members[1].address = rank == 0 ? address : options.members[1].address;
      const auto group = cluster.endpoint(rank).Connect(options, After(kHang));
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      body(rank, **group);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(TlsTest, TheNetworkSeesTheBytesWithoutItAlone) {
  const std::string line = "the gradient of layer 7; ";
  std::string text;
  while (text.size() < 1'000'000) {
    text += line;
  }
  for (const Media& media : {Media::kTcp, Media::kTls}) {
    Cluster cluster(2, media);
    Wiretap wiretap(cluster.endpoint(1));
    RunThrough(cluster, wiretap.address(), [&](int rank, Communicator& communicator) {
      EXPECT_EQ(communicator.transport(1 - rank), "tcp");
      for (const size_t size : {line.size(), text.size()}) {
        std::string there(size, ' ');
        const Work receive = communicator.Recv(
            1 - rank, size, std::as_writable_bytes(std::span(there.data(), size)), false);
        const Work send =
            communicator.Send(1 - rank, size, std::as_bytes(std::span(text.data(), size)), false);
        EXPECT_TRUE(receive.Wait().ok());
        EXPECT_TRUE(send.Wait().ok());
        EXPECT_TRUE(there == text.substr(0, size));
      }
      EXPECT_TRUE(communicator.Barrier({}).ok());
    });
    const std::string heard = wiretap.heard();
    EXPECT_GT(heard.size(), 2 * text.size());
    EXPECT_EQ(heard.find(line) != std::string::npos, media == Media::kTcp);
    EXPECT_EQ(heard.find("HDL1") != std::string::npos, media == Media::kTcp) << "frames' headers";
    EXPECT_EQ(heard.find("secret"), std::string::npos);
  }
}

TEST(TlsTest, AChangedByteIsNeverDelivered) {
  Cluster cluster(2, Media::kTls);
  Wiretap wiretap(cluster.endpoint(1), 50'000);
  RunThrough(cluster, wiretap.address(), [&](int rank, Communicator& communicator) {
    std::vector<int> data(100'000, 5);
    if (rank == 0) {
      EXPECT_FALSE(communicator.Send(1, 1, RawOf(data), false).Wait().ok() &&
                   communicator.Barrier({}).ok());
      return;
    }
    std::vector<int> there(data.size());
    const Status status = communicator.Recv(0, 1, RawOf(there), false).Wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("worker-0 was lost: TLS: "));
    for (const int value : there) {
      ASSERT_TRUE(value == 0 || value == 5);
    }
  });
}

TEST(TlsTest, LargeMessagesPassEachOther) {
  Cluster cluster(2, Media::kTls);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    std::vector<uint32_t> mine(16 << 20);
    std::vector<uint32_t> theirs(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      mine[i] = static_cast<uint32_t>(i) * 2654435761U + static_cast<uint32_t>(rank);
    }
    const Work receive = communicator.Recv(1 - rank, 1, RawOf(theirs), false);
    const Work send = communicator.Send(1 - rank, 1, RawOf(mine), false);
    ASSERT_TRUE(receive.Wait().ok());
    ASSERT_TRUE(send.Wait().ok());
    for (size_t i = 0; i < mine.size(); ++i) {
      ASSERT_EQ(theirs[i],
                static_cast<uint32_t>(i) * 2654435761U + static_cast<uint32_t>(1 - rank));
    }
  });
}

double Refused(metrics::Registry& registry, const std::string& reason) {
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      if (family.name == "heddle_comm_refused_connections_total" &&
          sample.labels.at("reason") == reason) {
        return sample.value;
      }
    }
  }
  return 0;
}

TEST(TlsTest, OneEndWithoutItIsRefusedAtBoth) {
  for (const int with : {0, 1}) {
    Cluster cluster(2, Media::kTcp);
    cluster.SetTls(with);
    auto acceptor = std::async(std::launch::async, [&] {
      return cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kHang)).status();
    });
    const Status dialler =
        cluster.endpoint(0).Connect(cluster.Options(0, 1), After(kHang)).status();
    const auto text = [](bool on) {
      return std::string("TLS is ") + (on ? "on here and off" : "off here and on") +
             " there: comm.tls must be the same for all workers";
    };
    EXPECT_EQ(dialler.code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(dialler.message(), "connecting to worker-1: refused: " + text(with == 0));
    const Status accepted = acceptor.get();
    EXPECT_EQ(accepted.code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(accepted.message(), "refused worker-0: " + text(with == 1));
    EXPECT_GE(Refused(cluster.registry(1), "tls"), 1);

    cluster.SetTls(1 - with);
    cluster.Run(2, [](int /*rank*/, Communicator& communicator) {
      EXPECT_TRUE(communicator.Barrier({}).ok());
    });
  }
}

/// The handshake of worker 0 with the endpoint of worker 1 that waits for it, up to where TLS
/// begins.
UniqueFd ShakeAsWorker0(Endpoint& endpoint) {
  UniqueFd socket = DialLoopback(endpoint);
  Hello hello;
  hello.generation = 1;
  hello.target = 1;
  hello.job = Sha256("job");
  hello.source_name = Sha256("worker-0");
  hello.target_name = Sha256("worker-1");
  hello.nonce = MakeNonce();
  Challenge challenge;
  Verdict verdict;
  const auto send = [&](const auto& message) {
    EXPECT_EQ(::send(socket.get(), &message, sizeof(message), 0),
              static_cast<ssize_t>(sizeof(message)));
  };
  const auto receive = [&](auto& message) {
    EXPECT_EQ(::recv(socket.get(), &message, sizeof(message), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(message)));
  };
  send(hello);
  receive(challenge);
  send(ProveDial("secret", hello, challenge, true));
  receive(verdict);
  EXPECT_EQ(verdict.code, VerdictCode::kWelcome);
  return socket;
}

void WaitForEnd(const UniqueFd& socket) {
  std::array<char, 1000> buffer{};
  while (::recv(socket.get(), buffer.data(), buffer.size(), 0) > 0) {
  }
}

/// What worker 1, which waits for worker 0, logs of a stranger that says `noise` where TLS should
/// begin. When worker 0 comes, they connect.
std::string LogOfAStranger(const std::string& noise) {
  ::testing::internal::CaptureStderr();
  Cluster cluster(2, Media::kTls);
  auto honest = std::async(std::launch::async, [&] {
    return cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kHang));
  });
  {
    const UniqueFd socket = ShakeAsWorker0(cluster.endpoint(1));
    EXPECT_EQ(::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(noise.size()));
    WaitForEnd(socket);
  }
  const auto late = cluster.endpoint(0).Connect(cluster.Options(0, 1), After(kHang));
  EXPECT_TRUE(late.ok()) << late.status().ToString();
  const auto patient = honest.get();
  EXPECT_TRUE(patient.ok()) << patient.status().ToString();
  return ::testing::internal::GetCapturedStderr();
}

TEST(TlsTest, NoiseAndSilenceWhereTlsShouldBeginHinderNobody) {
  FrameHeader frame;
  frame.generation = 1;
  frame.kind = FrameKind::kGoodbye;
  const std::string plain(reinterpret_cast<const char*>(&frame), sizeof(frame));
  const auto nothing = HasSubstr("came to nothing with worker-0: ");
  const auto too_late = HasSubstr("has not come within 2 s");
  for (const std::string& noise : {plain, std::string(2000, 'x'), std::string(2000, '\x16')}) {
    EXPECT_THAT(LogOfAStranger(noise), AllOf(nothing, Not(too_late)));
  }
  EXPECT_THAT(LogOfAStranger(""), AllOf(nothing, too_late));
}

/// Welcomes one dialler of worker 1's address, says `then` where TLS should begin, and waits for
/// its end.
void WelcomeOne(const UniqueFd& listener, const std::string& then) {
  const UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Hello hello;
  Challenge challenge;
  Proof proof;
  ::recv(socket.get(), &hello, sizeof(hello), MSG_WAITALL);
  ::send(socket.get(), &challenge, sizeof(challenge), MSG_NOSIGNAL);
  ::recv(socket.get(), &proof, sizeof(proof), MSG_WAITALL);
  const Verdict verdict{.mac = ProveAccept("secret", hello, challenge, VerdictCode::kWelcome)};
  ::send(socket.get(), &verdict, sizeof(verdict), MSG_NOSIGNAL);
  ::send(socket.get(), then.data(), then.size(), MSG_NOSIGNAL);
  WaitForEnd(socket);
}

TEST(TlsTest, ADiallerGoesOnlyWhereTlsIsSpoken) {
  FrameHeader frame;
  frame.generation = 1;
  frame.kind = FrameKind::kGoodbye;
  const std::string plain(reinterpret_cast<const char*>(&frame), sizeof(frame));
  for (const std::string& then : {std::string(), plain}) {
    Cluster cluster(2, Media::kTls);
    std::string port;
    const UniqueFd listener = ListenOnLoopback(port);
    std::thread other([&] { WelcomeOne(listener, then); });
    GroupOptions options = cluster.Options(0, 1);
    options.members[1].address = WithPort(cluster.endpoint(1), port);
    const Status status = cluster.endpoint(0).Connect(options, After(kHang)).status();
    other.join();
    EXPECT_THAT(status.message(), HasSubstr("worker-1"));
    if (then.empty()) {
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("in the handshake"));
    } else {
      EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status.ToString();
    }
  }
}

TEST(TlsTest, SharedMemoryStays) {
  Cluster cluster(2, Media::kShm);
  for (int rank = 0; rank < 2; ++rank) {
    cluster.SetTls(rank);
  }
  cluster.Run(1, [](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.transport(1 - rank), "shm");
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
}

}  // namespace
}  // namespace heddle::comm
