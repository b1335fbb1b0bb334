/// \file
/// What an endpoint refuses before it connects to anybody, which neighbours a group gets by itself,
/// and handshakes that come in pieces.
#include <future>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/system/unique_fd.h"
#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

TEST(EndpointTest, AGroupThatCannotBeIsRefusedAtOnce) {
  Cluster cluster(3, Media::kTcp);
  const auto refusal = [&](const std::function<void(GroupOptions&)>& change) {
    GroupOptions options = cluster.Options(1, 4);
    change(options);
    const Status status = cluster.endpoint(1).Connect(options, After(kAmple)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(refusal([](auto& o) { o.rank = -1; }), "rank -1 in a group of 3");
  EXPECT_EQ(refusal([](auto& o) { o.rank = 3; }), "rank 3 in a group of 3");
  EXPECT_EQ(refusal([](auto& o) { o.generation = -1; }), "generation -1");
  EXPECT_EQ(refusal([](auto& o) { o.links = std::make_shared<LinkTable>(2); }),
            "links of 2 workers for a group of 3");
  EXPECT_EQ(refusal([](auto& o) { o.peers = {0, 3}; }), "rank 1 lists peer 3 in a group of 3");
  EXPECT_EQ(refusal([](auto& o) { o.peers = {-1}; }), "rank 1 lists peer -1 in a group of 3");
  EXPECT_EQ(refusal([](auto& o) { o.peers = {1}; }), "rank 1 lists peer 1 in a group of 3");
  EXPECT_THAT(refusal([](auto& o) { o.transports = {"pigeon"}; }), HasSubstr("pigeon"));
}

TEST(EndpointTest, OptionsThatCannotBeAreRefused) {
  metrics::Registry registry;
  EndpointOptions options = OptionsFor(Media::kTcp, 0, &registry);
  options.link_bytes_per_second = -1;
  EXPECT_EQ(Endpoint::Create(options).status().message(), "a link rate of -1 bytes a second");
  options.link_bytes_per_second = 0;
  options.config.transports = {"pigeon"};
  EXPECT_EQ(Endpoint::Create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(EndpointTest, AGenerationIsConnectedOnceAndAnOlderOneNever) {
  Cluster cluster(2, Media::kTcp);
  cluster.Run(5, [&](int rank, Communicator& /*communicator*/) {
    if (rank == 0) {
      const auto again = cluster.endpoint(0).Connect(cluster.Options(0, 5), After(kAmple));
      EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
      EXPECT_EQ(again.status().message(), "generation 5 is connected already");
      const auto older = cluster.endpoint(0).Connect(cluster.Options(0, 4), After(kAmple));
      EXPECT_EQ(older.status().code(), StatusCode::kAborted);
      EXPECT_EQ(older.status().message(), "generation 4 is stale: 5 has begun");
    }
  });
  // Once it has ended it may be formed again.
  cluster.Run(5, [](int /*rank*/, Communicator& communicator) {
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
}

// Ranks 0 to 6 are a whole binary tree: each inner one has both children, each other its parent.
TEST(EndpointTest, AGroupHasTheTreesNeighboursWhomeverItLists) {
  constexpr int kSize = 7;
  Cluster cluster(kSize, Media::kTcp);
  std::vector<std::future<void>> members;
  for (int rank = 0; rank < kSize; ++rank) {
    members.push_back(std::async(std::launch::async, [&cluster, rank] {
      GroupOptions options = cluster.Options(rank, 1);
      options.peers.clear();
      auto communicator = cluster.endpoint(rank).Connect(options, After(kAmple));
      ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
      for (int other = 0; other < kSize; ++other) {
        const bool neighbour =
            other != rank && (other == (rank - 1) / 2 || rank == (other - 1) / 2);
        std::byte byte{1};
        if (neighbour) {
          const Work sent = (*communicator)->Send(other, 1, std::span(&byte, 1), false);
          std::byte got{};
          EXPECT_TRUE((*communicator)->Recv(other, 1, std::span(&got, 1), false).Wait().ok());
          EXPECT_TRUE(sent.Wait().ok()) << rank << " to " << other;
        } else if (other != rank) {
          EXPECT_FALSE((*communicator)->Send(other, 1, std::span(&byte, 1), false).Wait().ok())
              << rank << " to " << other;
        }
      }
      EXPECT_TRUE((*communicator)->Barrier({}).ok());
    }));
  }
  for (auto& member : members) {
    member.get();
  }
}

/// In as many pieces as it has bytes.
template <typename T>
void SendSlowly(int socket, const T& message) {
  const auto bytes = std::as_bytes(std::span(&message, 1));
  for (const std::byte& byte : bytes) {
    ASSERT_EQ(::send(socket, &byte, 1, MSG_NOSIGNAL), 1);
    std::this_thread::yield();
  }
}

template <typename T>
void Receive(int socket, T& message) {
  ASSERT_EQ(::recv(socket, &message, sizeof(T), MSG_WAITALL), static_cast<ssize_t>(sizeof(T)));
}

TEST(EndpointTest, AHandshakeMayComeByteByByte) {
  Cluster cluster(2, Media::kTcp);
  auto connecting = std::async(std::launch::async, [&] {
    return cluster.endpoint(1).Connect(cluster.Options(1, 1), After(kAmple)).status();
  });
  Hello hello;
  hello.generation = 1;
  hello.source = 0;
  hello.target = 1;
  hello.job = Sha256("job");
  hello.source_name = Sha256(Cluster::Name(0));
  hello.target_name = Sha256("another");  // It ends with the verdict.
  hello.nonce = MakeNonce();
  const std::string address = ParseAddress(cluster.endpoint(1).address())->at("tcp");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ASSERT_EQ(::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr), 1);
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  const int at_once = 1;
  ASSERT_EQ(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once)), 0);
  SendSlowly(socket.get(), hello);
  Challenge challenge;
  Receive(socket.get(), challenge);
  SendSlowly(socket.get(), ProveDial("secret", hello, challenge, false));
  Verdict verdict;
  Receive(socket.get(), verdict);
  EXPECT_EQ(verdict.code, VerdictCode::kWrongPeer) << "and not that it is malformed or a stranger";
  cluster.endpoint(1).Fence(2);
  EXPECT_EQ(connecting.get().code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace heddle::comm
