// The listening side of an endpoint: short of descriptors, and what a connection counts.
#include <atomic>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/unique_fd.h"
#include "comm/transport/transport.h"
#include "tests/comm/cluster.h"

namespace {

std::atomic<int> g_refused = 0;

}  // namespace

// This program's own, which counts the times at which there was no descriptor.
int accept4(int socket, sockaddr* from, socklen_t* size, int flags) {
  const auto accepted = static_cast<int>(::syscall(SYS_accept4, socket, from, size, flags));
  if (accepted < 0 && errno == EMFILE) {
    g_refused.fetch_add(1);
  }
  return accepted;
}

namespace heddle::comm {
namespace {

sockaddr_in TcpOf(Endpoint& endpoint) {
  const std::string address = ParseAddress(endpoint.address())->at("tcp");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return to;
}

// The kernel keeps who dials meanwhile, and its queue stays readable.
TEST(AcceptorTest, WithoutDescriptorsItPausesAndGoesOnAfterwards) {
  if (kSanitized) {
    GTEST_SKIP() << kSanitizerNeedsDescriptors;
  }
  Cluster cluster(2, Media::kTcp);
  const sockaddr_in to = TcpOf(cluster.endpoint(0));
  const UniqueFd dialler(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = ::dup(STDERR_FILENO);
  ::close(lowest_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int dialled = ::connect(dialler.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  constexpr int kLooks = 5;
  const Time begun = Now();
  while (g_refused.load() < kLooks && Now() < begun + kAmple) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Duration took = Now() - begun;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(dialled, 0);
  EXPECT_GE(g_refused.load(), kLooks);
  EXPECT_GT(took, (kLooks - 2) * std::chrono::milliseconds(100)) << "it looks ten times a second";
  cluster.Run(1, [&](int /*rank*/, Communicator& communicator) {
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST(AcceptorTest, EachTransportsCountersBeginAtZero) {
  Cluster cluster(1, Media::kShm);
  std::map<std::string, std::map<std::string, double>> counted;
  for (const auto& family : cluster.registry(0).Collect()) {
    for (const auto& sample : family.samples) {
      if (sample.labels.size() == 1 && sample.labels.contains("transport")) {
        counted[family.name][sample.labels.at("transport")] = sample.value;
      }
    }
  }
  for (const char* const name : {"heddle_comm_sent_bytes_total", "heddle_comm_received_bytes_total",
                                 "heddle_comm_placed_bytes_total"}) {
    EXPECT_EQ(counted[name], (std::map<std::string, double>{{"shm", 0}, {"tcp", 0}})) << name;
  }
}

TEST(AcceptorTest, AConnectionsCountersAreThereFromItsBeginning) {
  Cluster cluster(2, Media::kTcp);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    EXPECT_TRUE(communicator.Barrier({}).ok());
    std::map<std::string, double> counted;
    for (const auto& family : cluster.registry(rank).Collect()) {
      for (const auto& sample : family.samples) {
        if (sample.labels.contains("transport") && sample.labels.at("transport") == "tcp") {
          counted.emplace(family.name, sample.value);
        }
      }
    }
    EXPECT_GT(counted.at("heddle_comm_sent_bytes_total"), 0);
    EXPECT_GT(counted.at("heddle_comm_received_bytes_total"), 0);
    EXPECT_EQ(counted.at("heddle_comm_placed_bytes_total"), 0) << "TCP places nothing";
  });
}

}  // namespace
}  // namespace heddle::comm
