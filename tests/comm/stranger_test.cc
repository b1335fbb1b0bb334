// Who may not come in: old generations, other jobs, wrong secrets, noise.
#include <algorithm>
#include <cstddef>
#include <future>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/random.h"
#include "base/system/unique_fd.h"
#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"
#include "comm/transport/verbs/rails.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

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

bool Runs(const auto& future) {
  return future.wait_for(Duration()) == std::future_status::timeout;
}

class StrangerTest : public testing::TestWithParam<Media> {};

TEST_P(StrangerTest, StaleGenerationIsRefusedAndCounted) {
  Cluster cluster(2, GetParam());
  cluster.endpoint(1).Fence(5);
  const auto stale = cluster.endpoint(0).Connect(cluster.Options(0, 3), After(kAmple));
  EXPECT_EQ(stale.status().code(), StatusCode::kAborted) << stale.status().ToString();
  EXPECT_THAT(stale.status().message(), HasSubstr("worker-1"));
  EXPECT_GE(Refused(cluster.registry(1), "stale_generation"), 1);
  cluster.Run(5, [](int /*rank*/, Communicator& communicator) {
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_P(StrangerTest, NewerGenerationWaitsForItsPeer) {
  Cluster cluster(2, GetParam());
  auto early = std::async(std::launch::async, [&] {
    return cluster.endpoint(0).Connect(cluster.Options(0, 8), After(kAmple));
  });
  ComesToWait(cluster.endpoint(0), 8);
  EXPECT_TRUE(Runs(early)) << "its peer has not come yet";
  const auto late = cluster.endpoint(1).Connect(cluster.Options(1, 8), After(kAmple));
  EXPECT_TRUE(late.ok()) << late.status().ToString();
  const auto first = early.get();
  EXPECT_TRUE(first.ok()) << first.status().ToString();
}

TEST_P(StrangerTest, OtherSecretOrJobGetsNothing) {
  for (const bool other_job : {false, true}) {
    Cluster cluster(2, GetParam());
    const auto become = [&](EndpointConfig& config) {
      config.job = other_job ? "another" : "job";
      config.secret = other_job ? "secret" : "guess";
    };
    ASSERT_TRUE(cluster.Configure(0, become).ok());
    auto honest = std::async(std::launch::async, [&] {
      return cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kAmple)).status();
    });
    ComesToWait(cluster.endpoint(1), 1);
    const auto stranger = cluster.endpoint(0).Connect(cluster.Options(0, 1), After(kAmple));
    EXPECT_EQ(stranger.status().code(), StatusCode::kUnauthenticated)
        << stranger.status().ToString();
    EXPECT_TRUE(Runs(honest));
    EXPECT_EQ(cluster.endpoint(1).Awaited().names, std::vector<std::string>{"worker-0"});
    cluster.endpoint(1).Fence(2);
    EXPECT_EQ(honest.get().code(), StatusCode::kAborted);
    EXPECT_GE(Refused(cluster.registry(1), other_job ? "job" : "secret"), 1);
  }
}

TEST_P(StrangerTest, WhoNeverComesIsNamedAtTheDeadline) {
  Cluster cluster(2, GetParam());
  const auto alone = cluster.endpoint(1).Connect(cluster.Options(1, 1), After(milliseconds(50)));
  EXPECT_EQ(alone.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(alone.status().message(), HasSubstr("worker-0"));
}

TEST_P(StrangerTest, WithoutASecretNobodyConnects) {
  Cluster cluster(2, GetParam());
  ASSERT_TRUE(cluster.Configure(1, [](EndpointConfig& config) { config.secret = ""; }).ok());
  EXPECT_EQ(cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kAmple)).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.endpoint(0).Connect(cluster.Options(0, 1), After(kAmple)).status().code(),
            StatusCode::kUnauthenticated);
}

TEST_P(StrangerTest, AnotherNameOrRankIsRefused) {
  Cluster cluster(3, GetParam());
  GroupOptions options = cluster.Options(0, 1);
  options.members[1].address = options.members[2].address;  // Rank 1's address leads to worker-2.
  options.peers = {1};
  auto third = std::async(std::launch::async, [&] {
    return cluster.endpoint(2).Connect(cluster.Options(2, 1), After(kAmple)).status();
  });
  ComesToWait(cluster.endpoint(2), 1);
  const auto wrong = cluster.endpoint(0).Connect(options, After(kAmple));
  EXPECT_EQ(wrong.status().code(), StatusCode::kUnavailable) << wrong.status().ToString();
  // It waits for worker-1, unless it has heard that worker-0 gave up.
  cluster.endpoint(2).Fence(2);
  EXPECT_FALSE(third.get().ok());
}

UniqueFd DialTcp(Endpoint& endpoint) {
  const auto parts = ParseAddress(endpoint.address());
  // An endpoint with RDMA shakes hands for it at an address of its own.
  const std::string address = parts->contains("verbs")
                                  ? ParseRails(parts->at("verbs"))->front().listener
                                  : parts->at("tcp");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(::inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &to.sin_addr), 1);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}

TEST_P(StrangerTest, NoiseAndSilenceOnThePortHinderNobody) {
  Cluster cluster(2, GetParam());
  Random random(7);
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 300; ++i) {
    sockets.push_back(DialTcp(cluster.endpoint(i % 2)));
    std::string noise;
    if (i % 3 == 0) {
      noise =
          "GET / HTTP/1.0\r\nHost: somewhere far away, with a line that is longer than a greeting "
          "is\r\n\r\n";
    } else if (i % 3 == 1) {
      noise.resize(random.Below(2000));
      for (char& c : noise) {
        c = static_cast<char>(random.Next() & 0x7F);
      }
    }
    // The far side may have closed already.
    [[maybe_unused]] const ssize_t sent =
        ::send(sockets.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
  const Time deadline = After(kAmple);
  while (Refused(cluster.registry(0), "malformed") < 50 && Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_GE(Refused(cluster.registry(0), "malformed"), 50);
}

TEST_P(StrangerTest, AReplayedHandshakeProvesNothing) {
  Cluster cluster(1, GetParam());
  Hello hello;
  hello.generation = 1;
  hello.job = Sha256("job");
  hello.nonce = MakeNonce();
  Challenge challenge;
  Proof proof;
  for (int round = 0; round < 2; ++round) {
    const UniqueFd socket = DialTcp(cluster.endpoint(0));
    ASSERT_EQ(::send(socket.get(), &hello, sizeof(hello), 0), static_cast<ssize_t>(sizeof(hello)));
    Challenge fresh;
    ASSERT_EQ(::recv(socket.get(), &fresh, sizeof(fresh), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(fresh)));
    if (round == 0) {
      challenge = fresh;
      proof = ProveDial("secret", hello, challenge, GetParam() == Media::kTls);
    }
    ASSERT_EQ(::send(socket.get(), &proof, sizeof(proof), 0), static_cast<ssize_t>(sizeof(proof)));
    if (round == 1) {
      Verdict verdict;
      ASSERT_EQ(::recv(socket.get(), &verdict, sizeof(verdict), MSG_WAITALL),
                static_cast<ssize_t>(sizeof(verdict)));
      EXPECT_EQ(verdict.code, VerdictCode::kWrongSecret);
    }
  }
  EXPECT_EQ(Refused(cluster.registry(0), "secret"), 1);
}

// Whoever knows the secret is still asked which of the pair's connections this is to be.
TEST_P(StrangerTest, ATrafficClassThatDoesNotExistIsRefused) {
  Cluster cluster(2, GetParam());
  auto connecting = std::async(std::launch::async, [&] {
    return cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kAmple)).status();
  });
  Hello hello;
  hello.traffic_class = kTrafficClasses;
  hello.generation = 1;
  hello.source = 0;
  hello.target = 1;
  hello.job = Sha256("job");
  hello.source_name = Sha256(Cluster::Name(0));
  hello.target_name = Sha256(Cluster::Name(1));
  hello.nonce = MakeNonce();
  const UniqueFd socket = DialTcp(cluster.endpoint(1));
  ASSERT_EQ(::send(socket.get(), &hello, sizeof(hello), 0), static_cast<ssize_t>(sizeof(hello)));
  Challenge challenge;
  ASSERT_EQ(::recv(socket.get(), &challenge, sizeof(challenge), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(challenge)));
  const Proof proof = ProveDial("secret", hello, challenge, false);
  ASSERT_EQ(::send(socket.get(), &proof, sizeof(proof), 0), static_cast<ssize_t>(sizeof(proof)));
  Verdict verdict;
  ASSERT_EQ(::recv(socket.get(), &verdict, sizeof(verdict), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(verdict)));
  EXPECT_EQ(verdict.code, VerdictCode::kWrongPeer);
  EXPECT_EQ(Refused(cluster.registry(1), "peer"), 1);
  cluster.endpoint(1).Fence(2);
  EXPECT_EQ(connecting.get().code(), StatusCode::kAborted);
}

/// Says `hello` to the local socket of `endpoint`, and hears what is asked.
UniqueFd Greet(Endpoint& endpoint, const Hello& hello, Challenge& challenge) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::string name = ParseAddress(endpoint.address())->at("shm");
  std::copy(name.begin(), name.end(), to.sun_path + 1);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  EXPECT_EQ(::send(socket.get(), &hello, sizeof(hello), 0), static_cast<ssize_t>(sizeof(hello)));
  EXPECT_EQ(::recv(socket.get(), &challenge, sizeof(challenge), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(challenge)));
  return socket;
}

// Authentic, welcome, and then not what a worker is: the acceptor says with whom it came to
// nothing.
TEST(AcceptorTest, AConnectionThatComesToNothingIsSaid) {
  for (const bool silent : {false, true}) {
    Cluster cluster(2, Media::kShm);
    testing::internal::CaptureStderr();
    auto connecting = std::async(std::launch::async, [&] {
      return cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kAmple)).status();
    });
    Hello hello;
    hello.generation = 1;
    hello.target = 1;
    hello.job = Sha256("job");
    hello.source_name = Sha256(Cluster::Name(0));
    hello.target_name = Sha256(Cluster::Name(1));
    hello.nonce = MakeNonce();
    Challenge challenge;
    const UniqueFd socket = Greet(cluster.endpoint(1), hello, challenge);
    const Proof proof = ProveDial("secret", hello, challenge, false);
    ASSERT_EQ(::send(socket.get(), &proof, sizeof(proof), 0), static_cast<ssize_t>(sizeof(proof)));
    Verdict verdict;
    ASSERT_EQ(::recv(socket.get(), &verdict, sizeof(verdict), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(verdict)));
    EXPECT_EQ(verdict.code, VerdictCode::kWelcome);
    if (!silent) {
      ASSERT_EQ(::send(socket.get(), "x", 1, 0), 1);  // Without the memory that belongs to it.
    }
    // The acceptor closes it, and says why before it answers the next one.
    std::byte end{};
    EXPECT_LE(::recv(socket.get(), &end, 1, 0), 0);
    Greet(cluster.endpoint(1), hello, challenge);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("shm came to nothing with worker-0: "));
    EXPECT_THAT(log, HasSubstr(silent ? "has not come within 2 s" : "with 0 descriptors"));
    EXPECT_TRUE(Runs(connecting));
    cluster.endpoint(1).Fence(2);
    EXPECT_EQ(connecting.get().code(), StatusCode::kAborted);
  }
}

INSTANTIATE_TEST_SUITE_P(Media,
                         StrangerTest,
                         testing::ValuesIn(MediaHere({.tls = true})),
                         [](const auto& parameter) { return MediaName(parameter.param); });

TEST(AddressTest, OnlyEndpointsAddressesParse) {
  EXPECT_EQ(*ParseAddress(FormatAddress({{"host", "a.1"}, {"tcp", "1.2.3.4:5"}})),
            (AddressParts{{"host", "a.1"}, {"tcp", "1.2.3.4:5"}}));
  for (const char* text :
       {"", "tcp=1", "heddle1tcp=1", "heddle1;tcp", "heddle1;", "heddle2;tcp=1"}) {
    EXPECT_EQ(ParseAddress(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EndpointOptions options;
  metrics::Registry registry;
  options.metrics = &registry;
  options.bind_host = "192.0.2.1";  // TEST-NET-1: nobody's.
  EXPECT_EQ(Endpoint::Create(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::comm
