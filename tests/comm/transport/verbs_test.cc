// What only RDMA has: limits on locked memory, forks, queue pairs and links that break,
// registrations that must not leak. Runs where HEDDLE_TEST_RDMA names a device that nobody else
// uses: in a guest of scripts/rdma-vm.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/unique_fd.h"
#include "comm/stream/frame.h"
#include "comm/transport/ip_socket.h"
#include "comm/transport/traffic_class.h"
#include "comm/transport/verbs/rdma_ports.h"
#include "comm/transport/verbs/verbs_connection.h"
#include "comm/transport/verbs/verbs_setup.h"
#include "tests/comm/cluster.h"
#include "tests/support/eventually.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::kHang;

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RdmaDevice().empty()) {
      GTEST_SKIP() << "HEDDLE_TEST_RDMA names no device";
    }
  }
};

double Count(metrics::Registry& registry, const std::string& name, const std::string& transport) {
  double sum = 0;
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      if (family.name == name && sample.labels.at("transport") == transport) {
        sum += sample.value;
      }
    }
  }
  return sum;
}

std::string OutputOf(const std::string& command) {
  std::string output;
  std::array<char, 4096> buffer{};
  FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), got);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return output;
}

/// Objects of a kind ("mr", "qp" …) that the device holds for all processes.
int Objects(const std::string& kind) {
  const std::string text = OutputOf("rdma resource show " + RdmaDevice());
  const size_t found = text.find(" " + kind + " ");
  EXPECT_NE(found, std::string::npos) << text;
  return found == std::string::npos ? -1 : std::atoi(text.c_str() + found + kind.size() + 2);
}

TEST_F(VerbsTest, IsLeftForTcpWhereBytesAreToBeEncrypted) {
  Cluster cluster(2, Media::kVerbs);
  for (int rank = 0; rank < 2; ++rank) {
    cluster.SetTls(rank);
  }
  cluster.Run(1, [](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.transport(1 - rank), "tcp");
    EXPECT_TRUE(communicator.Barrier({}).ok());
  });
  // Nor does a list of transports bring it back.
  ASSERT_TRUE(cluster.SetTransports(0, {"verbs"}).ok());
  const Status alone = cluster.endpoint(0).Connect(cluster.Options(0, 2), After(kHang)).status();
  EXPECT_EQ(alone.code(), StatusCode::kUnavailable);
  EXPECT_THAT(alone.message(), HasSubstr("verbs (not encrypted, and comm.tls is on)"));
}

TEST_F(VerbsTest, BytesAreCountedAsVerbs) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    Bytes bytes(1 << 20);
    ASSERT_TRUE(
        (rank == 0 ? communicator.Send(1, 1, bytes, false) : communicator.Recv(0, 1, bytes, false))
            .Wait()
            .ok());
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
  EXPECT_GE(Count(cluster.registry(0), "heddle_comm_sent_bytes_total", "verbs"), 1 << 20);
  EXPECT_EQ(Count(cluster.registry(0), "heddle_comm_sent_bytes_total", "tcp"), 0);
  EXPECT_EQ(Count(cluster.registry(0), "heddle_comm_fallbacks_total", "verbs"), 0);
}

// What a sender writes into its message of that number. Its bytes repeat after 256: whole blocks
// are copied and compared, for an emulated processor takes its time for each byte.
constexpr size_t kPeriod = 256;
using Pattern = std::array<std::byte, kPeriod>;

Pattern PatternOf(size_t message, int sender) {
  Pattern pattern;
  for (size_t at = 0; at < kPeriod; ++at) {
    pattern[at] = static_cast<std::byte>(at * 31 + message * 7 + static_cast<size_t>(sender));
  }
  return pattern;
}

void Fill(std::span<std::byte> data, const Pattern& pattern) {
  for (size_t at = 0; at < data.size(); at += kPeriod) {
    std::memcpy(data.data() + at, pattern.data(), std::min(kPeriod, data.size() - at));
  }
}

bool Holds(std::span<const std::byte> data, const Pattern& pattern) {
  for (size_t at = 0; at < data.size(); at += kPeriod) {
    if (std::memcmp(data.data() + at, pattern.data(), std::min(kPeriod, data.size() - at)) != 0) {
      return false;
    }
  }
  return true;
}

/// Spans of `sizes` in memory that is shared or ordinary.
class Buffers {
 public:
  Buffers(Endpoint& endpoint, const std::vector<size_t>& sizes, bool shared) {
    const size_t all = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    std::span<std::byte> rest;
    if (shared) {
      auto buffer = endpoint.AllocateShared(all);
      EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
      shared_ = *std::move(buffer);
      rest = shared_.bytes();
    } else {
      own_.resize(all);
      rest = own_;
    }
    for (const size_t size : sizes) {
      each_.push_back(rest.first(size));
      rest = rest.subspan(size);
    }
  }
  std::span<std::byte> operator[](size_t i) const { return each_[i]; }

 private:
  SharedBuffer shared_;
  Bytes own_;
  std::vector<std::span<std::byte>> each_;
};

// Messages of every size around the pieces, the ring and the credit, both ways at once; from and to
// ordinary memory, and shared buffers, between which devices carry the large ones themselves.
TEST_F(VerbsTest, MessagesOfAllSizesArriveWholeInBothDirections) {
  std::vector<size_t> sizes;
  for (const size_t middle : {1U << 15, 1U << 16, 1U << 17, 1U << 18, 1U << 20, 3U << 20}) {
    for (const size_t size : {middle - 49, middle - 48, middle - 1, middle + 0, middle + 1}) {
      sizes.push_back(size);
    }
  }
  size_t placed = 0;
  for (const size_t size : sizes) {
    placed += size < kPlacedBytes ? 0 : size;
  }
  for (size_t i = 0; i < 600; ++i) {
    sizes.push_back(i % 57);  // More than the receives that are posted.
  }
  for (const bool from_shared : {false, true}) {
    for (const bool to_shared : {false, true}) {
      Cluster cluster(2, Media::kVerbs);
      cluster.Run(1, [&](int rank, Communicator& communicator) {
        const Buffers outgoing(cluster.endpoint(rank), sizes, from_shared);
        const Buffers incoming(cluster.endpoint(rank), sizes, to_shared);
        std::vector<Work> works;
        for (size_t i = 0; i < sizes.size(); ++i) {
          Fill(outgoing[i], PatternOf(i, rank));
          works.push_back(communicator.Recv(1 - rank, i, incoming[i], i % 3 == 0));
        }
        for (size_t i = 0; i < sizes.size(); ++i) {
          works.push_back(communicator.Send(1 - rank, i, outgoing[i], i % 3 == 0));
        }
        // The last first: a buffer is the caller's again as soon as its Send has ended.
        for (size_t i = works.size(); i-- > 0;) {
          ASSERT_TRUE(works[i].Wait().ok());
          if (i >= sizes.size()) {
            const auto sent = outgoing[i - sizes.size()];
            std::fill(sent.begin(), sent.end(), std::byte{0xEE});
          }
        }
        for (size_t i = 0; i < sizes.size(); ++i) {
          EXPECT_TRUE(Holds(incoming[i], PatternOf(i, 1 - rank))) << sizes[i];
        }
        ASSERT_TRUE(communicator.Barrier({}).ok());
        EXPECT_EQ(Count(cluster.registry(rank), "heddle_comm_placed_bytes_total", "verbs"),
                  from_shared && to_shared ? placed : 0);
      });
    }
  }
}

/// A message between shared buffers that is under way for long.
class VerbsPlacementTest : public VerbsTest {
 protected:
  using Receiver = std::function<Status(Communicator&, Work&)>;
  /// Of the message, at both ends.
  struct Ends {
    Status sender;
    Status receiver;
  };

  /// Rank 0 sends; `receiver` ends the message at rank 1 once bytes have begun to come. Nothing
  /// comes later. A machine that stands still may let the whole message come first: once more.
  static Ends CutShort(const Receiver& receiver) {
    Ends ends;
    for (int attempt = 0; attempt < 20; ++attempt) {
      if (Try(receiver, ends)) {
        return ends;
      }
    }
    ADD_FAILURE() << "no message was still under way when it was ended";
    return ends;
  }

 private:
  static constexpr size_t kLarge = size_t{64} << 20;

  /// Whether the message was still under way.
  static bool Try(const Receiver& receiver, Ends& ends) {
    Cluster cluster(2, Media::kVerbs);
    bool unfinished = false;
    cluster.Run(1, [&](int rank, Communicator& communicator) {
      auto buffer = cluster.endpoint(rank).AllocateShared(kLarge);
      ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
      const std::span<std::byte> bytes = buffer->bytes();
      if (rank == 0) {
        std::fill(bytes.begin(), bytes.end(), std::byte{1});
        ends.sender = communicator.Send(1, 1, bytes, false).Wait(After(kHang));
        return;
      }
      Work work = communicator.Recv(0, 1, bytes, false);
      const auto first = [&] { return std::atomic_ref(bytes.front()).load(); };
      EXPECT_TRUE(Eventually([&] { return first() != std::byte{0}; }));
      ends.receiver = receiver(communicator, work);
      const auto arrived = [&] {
        return static_cast<size_t>(std::count(bytes.begin(), bytes.end(), std::byte{1}));
      };
      const size_t before = arrived();
      unfinished = before < kLarge;
      std::this_thread::sleep_for(milliseconds(300));
      EXPECT_EQ(arrived(), before);
    });
    return unfinished;
  }
};

TEST_F(VerbsPlacementTest, AnAbortIsAnnouncedAndNothingLandsAfterwards) {
  const Ends ends = CutShort([](Communicator& communicator, Work& work) {
    communicator.Abort(AbortedError("enough"));
    return work.Wait();
  });
  EXPECT_EQ(ends.receiver.code(), StatusCode::kAborted);
  EXPECT_EQ(ends.sender.code(), StatusCode::kAborted);
  EXPECT_THAT(ends.sender.message(), HasSubstr("worker-1 aborted: enough"));
}

TEST_F(VerbsPlacementTest, NothingLandsAfterADeadline) {
  const Ends ends = CutShort([](Communicator&, Work& work) { return work.Wait(Now()); });
  EXPECT_EQ(ends.receiver.code(), StatusCode::kDeadlineExceeded) << ends.receiver.ToString();
  EXPECT_EQ(ends.sender.code(), StatusCode::kUnavailable) << ends.sender.ToString();
  EXPECT_THAT(ends.sender.message(), HasSubstr("worker-1 was lost"));
}

TEST_F(VerbsPlacementTest, ABufferThatGoesIsNotRegisteredAnyMore) {
  Cluster cluster(2, Media::kVerbs);
  std::atomic<int> regions = 0;
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    ASSERT_TRUE(communicator.Barrier({}).ok());
    if (rank == 0) {
      regions.store(Objects("mr"));
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
    for (int round = 0; round < 3; ++round) {
      auto buffer = cluster.endpoint(rank).AllocateShared(1 << 20);
      ASSERT_TRUE(buffer.ok());
      ASSERT_TRUE((rank == 0 ? communicator.Send(1, 1, buffer->bytes(), false)
                             : communicator.Recv(0, 1, buffer->bytes(), false))
                      .Wait()
                      .ok());
      ASSERT_TRUE(communicator.Barrier({}).ok());
      if (rank == 0) {
        EXPECT_EQ(Objects("mr"), regions.load() + 2);
      }
      ASSERT_TRUE(communicator.Barrier({}).ok());
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
    if (rank == 0) {
      EXPECT_EQ(Objects("mr"), regions.load());
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_F(VerbsTest, NothingStaysRegisteredAfterAGroupHasEnded) {
  Cluster cluster(3, Media::kVerbs);
  const int pairs = Objects("qp");
  const int regions = Objects("mr");
  for (int64_t generation = 1; generation <= 8; ++generation) {
    cluster.Run(generation, [&](int rank, Communicator& communicator) {
      std::vector<float> buffer(100000, 1.0F);
      EXPECT_TRUE(communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum, {}).ok());
      if (rank == 0) {
        EXPECT_EQ(Objects("qp"), pairs + 6 * static_cast<int>(kTrafficClasses));
        EXPECT_EQ(Objects("mr"), regions + 12 * static_cast<int>(kTrafficClasses));
      }
      EXPECT_TRUE(communicator.Barrier({}).ok());
      if (generation % 2 == 0 && rank == 1) {
        communicator.Abort(AbortedError("generation {} ends", generation));
      }
    });
    EXPECT_TRUE(Eventually([&] { return Objects("mr") <= regions && Objects("qp") <= pairs; }));
    EXPECT_EQ(Objects("mr"), regions) << generation;
    EXPECT_EQ(Objects("qp"), pairs) << generation;
  }
}

TEST_F(VerbsTest, ALinkThatGoesDownIsNamedAndTheNextGenerationForms) {
  Cluster cluster(3, Media::kVerbs);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    std::vector<float> buffer(300000, 1.0F);
    Status status;
    for (uint64_t tag = 0; status.ok(); ++tag) {
      if (rank == 0 && tag == 3) {
        OutputOf("ip link set eth0 down");
      }
      status = communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kMax,
                                      {.group = {}, .tag = tag, .deadline = After(kHang)});
    }
    EXPECT_TRUE(status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted)
        << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("worker-"));
    communicator.Abort(status);
  });
  OutputOf("ip link set eth0 up");
  // The device's address comes back a moment after the link.
  Status formed = UnavailableError("not tried");
  for (int64_t generation = 2; generation < 20 && !formed.ok(); ++generation) {
    std::vector<std::future<Status>> members;
    for (int rank = 0; rank < 3; ++rank) {
      members.push_back(std::async(std::launch::async, [&cluster, rank, generation] {
        auto group =
            cluster.endpoint(rank).Connect(cluster.Options(rank, generation), After(seconds(3)));
        if (!group.ok()) {
          return group.status();
        }
        const std::string transport = (*group)->transport(rank == 0 ? 1 : 0);
        const Status barrier = (*group)->Barrier({});
        return transport == "verbs" ? barrier : UnavailableError("over {}", transport);
      }));
    }
    formed = Status::Ok();
    for (auto& member : members) {
      const Status status = member.get();
      formed = formed.ok() ? status : formed;
    }
  }
  EXPECT_TRUE(formed.ok()) << formed.ToString();
}

TEST_F(VerbsTest, AForkWhileMemoryIsRegisteredChangesNothing) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [](int rank, Communicator& communicator) {
    for (uint64_t round = 0; round < 6; ++round) {
      pid_t child = -1;
      if (rank == 0) {
        child = ::fork();
        if (child == 0) {
          // The child scribbles on its copy of everything that it can reach here, and goes.
          Bytes noise(1 << 20, std::byte{0xEE});
          ::_exit(noise.back() == std::byte{0xEE} ? 0 : 1);
        }
      }
      std::vector<float> buffer(200000, static_cast<float>(rank + 1));
      ASSERT_TRUE(communicator
                      .AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kSum,
                                 {.group = {}, .tag = round, .deadline = {}})
                      .ok());
      EXPECT_EQ(buffer, std::vector<float>(200000, 3.0F));
      if (child > 0) {
        int status = -1;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
      }
    }
  });
}

bool Ready(int fd, Duration bound) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  const auto left = std::chrono::duration_cast<milliseconds>(bound).count();
  return ::poll(&wait, 1, static_cast<int>(left)) == 1;
}

/// Asks for a connection at iWARP's port `to`, knowing nothing; the answer.
rdma_cm_event_type ConnectAsStranger(sockaddr_in to) {
  rdma_event_channel* channel = ::rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  const auto next = [&] {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(::rdma_get_cm_event(channel, &event), 0);
    const rdma_cm_event_type type = event->event;
    ::rdma_ack_cm_event(event);
    return type;
  };
  EXPECT_EQ(::rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
  EXPECT_EQ(next(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(::rdma_resolve_route(id, 1000), 0);
  EXPECT_EQ(next(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  ibv_qp_init_attr want{};
  want.qp_type = IBV_QPT_RC;
  want.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  EXPECT_EQ(::rdma_create_qp(id, nullptr, &want), 0);
  rdma_conn_param parameters{};
  EXPECT_EQ(::rdma_connect(id, &parameters), 0);
  return next();
}

// Both ends of a set-up by hand, since only so a stranger can come between two of its steps.
TEST_F(VerbsTest, AStrangerAtIwarpsPortIsRejectedAndKeepsNoLoopAwake) {
  if (!RdmaDevice().starts_with("siw")) {
    GTEST_SKIP() << "only iWARP listens at a port of its own";
  }
  const auto ports = ChooseRdmaPorts(FindRdmaPorts(), RdmaDevice(), "");
  ASSERT_EQ(ports.size(), 1u);
  const RdmaPort* const port = &ports.front();
  auto device = VerbsDevice::Open(*port);
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  auto listener = ListenTcp(port->ip);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  auto socket = DialTcp(listener->address, listener->address);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  ASSERT_TRUE(Ready(listener->socket.get(), kHang));
  UniqueFd accepted(::accept4(listener->socket.get(), nullptr, nullptr, SOCK_NONBLOCK));
  ASSERT_TRUE(accepted.valid());
  const UniqueFd heard(::dup(socket->get()));

  const auto dialler = MakeVerbsSetup(*device, *std::move(socket), TrafficClass::kBulk, true);
  const auto acceptor = MakeVerbsSetup(*device, std::move(accepted), TrafficClass::kBulk, false);
  // The dialler asks for its connection and then hears no more for a while.
  const auto advance = [](ConnectionSetup& setup) {
    auto connection = setup.Advance();
    EXPECT_TRUE(connection.ok()) << connection.status().ToString();
    return connection.ok() ? *std::move(connection) : nullptr;
  };
  ASSERT_EQ(advance(*dialler), nullptr);
  ASSERT_EQ(advance(*acceptor), nullptr);
  ASSERT_TRUE(Ready(heard.get(), kHang));
  VerbsHello hello;
  ASSERT_EQ(::recv(heard.get(), &hello, sizeof(hello), MSG_PEEK), sizeof(hello));
  for (int step = 0; step < 10 && !Ready(acceptor->fd(), milliseconds(50)); ++step) {
    ASSERT_EQ(advance(*dialler), nullptr);
  }
  const Time accept_by = After(milliseconds(500));
  while (Now() < accept_by) {
    if (Ready(acceptor->fd(), milliseconds(20))) {
      ASSERT_EQ(advance(*acceptor), nullptr);
    }
  }
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getpeername(heard.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  address.sin_port = htons(hello.cm_port);
  auto answer = std::async(std::launch::async, ConnectAsStranger, address);
  int wakings = 0;
  const auto is_answered = [&] { return answer.wait_for(seconds(0)) == std::future_status::ready; };
  for (Time quiet_until = After(kHang); Now() < quiet_until;) {
    if (Ready(acceptor->fd(), milliseconds(20))) {
      ++wakings;
      ASSERT_EQ(advance(*acceptor), nullptr);
    }
    if (is_answered()) {
      quiet_until = std::min(quiet_until, After(milliseconds(300)));
    }
  }
  EXPECT_GE(wakings, 1);
  EXPECT_LE(wakings, 5);
  EXPECT_EQ(answer.get(), RDMA_CM_EVENT_REJECTED);

  std::unique_ptr<Connection> dialled;
  std::unique_ptr<Connection> taken;
  const Time deadline = After(kHang);
  while ((dialled == nullptr || taken == nullptr) && Now() < deadline) {
    if (dialled == nullptr && Ready(dialler->fd(), milliseconds(5))) {
      dialled = advance(*dialler);
    }
    if (taken == nullptr && Ready(acceptor->fd(), milliseconds(5))) {
      taken = advance(*acceptor);
    }
  }
  EXPECT_NE(dialled, nullptr);
  EXPECT_NE(taken, nullptr);
}

// A user whose limit on locked memory is Debian's old default. In a child of its own: root is not
// limited, and one does not become root again.
TEST_F(VerbsTest, WithoutLockedMemoryThePairFallsBackAndSaysWhy) {
  int out[2] = {};
  ASSERT_EQ(::pipe(out), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDERR_FILENO);
    const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    constexpr uid_t kNobody = 65534;
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresuid(kNobody, kNobody, kNobody) != 0) {
      ::_exit(2);
    }
    Cluster cluster(2, Media::kVerbs);
    cluster.Run(1, [](int rank, Communicator& communicator) {
      EXPECT_EQ(communicator.transport(1 - rank), "tcp");
      EXPECT_TRUE(communicator.Barrier({}).ok());
    });
    EXPECT_EQ(Count(cluster.registry(0), "heddle_comm_fallbacks_total", "verbs"), kTrafficClasses);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(out[1]);
  const UniqueFd reader(out[0]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(reader.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("verbs is not used with worker-1"));
  EXPECT_THAT(text, HasSubstr("RLIMIT_MEMLOCK is 64 KiB"));
  EXPECT_THAT(text, HasSubstr("ulimit -l unlimited"));
}

}  // namespace
}  // namespace heddle::comm
