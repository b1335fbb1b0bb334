// Whom an endpoint lets in: an authentic dialler, played by the test, that claims each thing
// wrongly, comes twice, too early or too late.
#include <functional>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/system/unique_fd.h"
#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

/// Those that have happened; all begin at 0.
std::vector<std::pair<std::string, double>> Refusals(metrics::Registry& registry) {
  std::vector<std::pair<std::string, double>> refusals;
  for (const auto& family : registry.Collect()) {
    for (const auto& sample : family.samples) {
      if (family.name == "heddle_comm_refused_connections_total" && sample.value > 0) {
        refusals.emplace_back(sample.labels.at("reason"), sample.value);
      }
    }
  }
  return refusals;
}

/// A dialler with the job's secret.
class Dialler {
 public:
  explicit Dialler(Endpoint& endpoint) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const std::string address = ParseAddress(endpoint.address())->at("tcp");
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  /// All but the verdict.
  void Claim(const Hello& hello, bool tls = false) {
    hello_ = hello;
    Send(hello_);
    challenge_ = Receive<Challenge>();
    Send(ProveDial("secret", hello_, challenge_, tls));
  }
  VerdictCode Verdicted() {
    const auto verdict = Receive<Verdict>();
    EXPECT_EQ(verdict.mac, ProveAccept("secret", hello_, challenge_, verdict.code));
    return verdict.code;
  }
  bool HasAnAnswer(int milliseconds) const {
    pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, milliseconds) == 1;
  }
  void Close() { socket_.Reset(); }

 private:
  template <typename T>
  void Send(const T& message) {
    EXPECT_EQ(::send(socket_.get(), &message, sizeof(message), MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof(message)));
  }
  template <typename T>
  T Receive() {
    T message{};
    EXPECT_EQ(::recv(socket_.get(), &message, sizeof(message), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(message)));
    return message;
  }

  UniqueFd socket_;
  Hello hello_;
  Challenge challenge_;
};

Hello From(int source, int target, int64_t generation) {
  Hello hello;
  hello.generation = generation;
  hello.source = source;
  hello.target = target;
  hello.job = Sha256("job");
  hello.source_name = Sha256(Cluster::Name(source));
  hello.target_name = Sha256(Cluster::Name(target));
  hello.nonce = MakeNonce();
  return hello;
}

/// Worker 2 of four connects, and waits for the test's worker 0 or 1.
class AdmissionTest : public testing::Test {
 protected:
  void SetUp() override {
    GroupOptions options = cluster_.Options(2, 5);
    options.peers = {0, 3};
    connecting_ = std::async(std::launch::async, [this, options] {
      return cluster_.endpoint(2).Connect(options, After(kAmple)).status();
    });
  }
  void TearDown() override { cluster_.endpoint(2).Fence(9); }

  Cluster cluster_{4, Media::kTcp};
  std::future<Status> connecting_;
};

TEST_F(AdmissionTest, EachReasonIsCountedFromZeroOn) {
  std::map<std::string, double> counted;
  for (const auto& family : cluster_.registry(3).Collect()) {
    for (const auto& sample : family.samples) {
      if (family.name == "heddle_comm_refused_connections_total") {
        counted[sample.labels.at("reason")] = sample.value;
      }
    }
  }
  // All verdicts but the welcome, by their numbers.
  for (uint32_t code = 1; VerdictName(VerdictCode{code}) != "unknown"; ++code) {
    EXPECT_TRUE(counted.contains(std::string(VerdictName(VerdictCode{code})))) << code;
  }
  EXPECT_EQ(counted.size(), kRefusals.size());
}

TEST_F(AdmissionTest, EachClaimThatIsWrongIsRefused) {
  const std::vector<std::function<void(Hello&)>> wrong = {
      [](Hello& hello) { hello.target = 1; },
      [](Hello& hello) { hello.source = 1; },  // No peer of worker 2, and another's name.
      [](Hello& hello) { hello = From(1, 2, 5); },
      [](Hello& hello) { hello = From(3, 2, 5); },  // A peer, but worker 2 dials it.
      [](Hello& hello) { hello.source = -1; },
      [](Hello& hello) { hello.source = 4; },
      [](Hello& hello) { hello.traffic_class = 2; },
      [](Hello& hello) { hello.source_name = Sha256("worker-1"); },
      [](Hello& hello) { hello.target_name = Sha256("worker-1"); },
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    Dialler dialler(cluster_.endpoint(2));
    Hello hello = From(0, 2, 5);
    wrong[i](hello);
    dialler.Claim(hello);
    EXPECT_EQ(dialler.Verdicted(), VerdictCode::kWrongPeer) << i;
  }
  EXPECT_EQ(Refusals(cluster_.registry(2)),
            (std::vector<std::pair<std::string, double>>{{"peer", 9}}));
}

TEST_F(AdmissionTest, WhoIsRightIsWelcomeOnceForEachTrafficClass) {
  std::vector<Dialler> kept;
  for (const uint32_t traffic_class : {1U, 0U}) {
    for (const bool again : {false, true}) {
      kept.emplace_back(cluster_.endpoint(2));
      Hello hello = From(0, 2, 5);
      hello.traffic_class = traffic_class;
      kept.back().Claim(hello);
      const VerdictCode code = kept.back().Verdicted();
      // The bulk connection's setup is still under way, so that another may come.
      if (again && traffic_class == 1) {
        EXPECT_EQ(code, VerdictCode::kDuplicate);
      } else {
        EXPECT_EQ(code, VerdictCode::kWelcome);
      }
    }
  }
  EXPECT_EQ(Refusals(cluster_.registry(2)),
            (std::vector<std::pair<std::string, double>>{{"duplicate", 1}}));
}

TEST_F(AdmissionTest, WhoUsesTlsAloneEndsTheForming) {
  Dialler dialler(cluster_.endpoint(2));
  dialler.Claim(From(0, 2, 5), true);
  EXPECT_EQ(dialler.Verdicted(), VerdictCode::kWrongTls);
  const Status status = connecting_.get();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(status.message(), "refused worker-0: " + TlsMismatch(false));
}

// A worker that is a little ahead is held until this one comes; one that is behind is told so.
TEST_F(AdmissionTest, AnotherGenerationIsHeldOrStale) {
  Dialler old(cluster_.endpoint(2));
  old.Claim(From(0, 2, 4));
  EXPECT_EQ(old.Verdicted(), VerdictCode::kStaleGeneration);
  Dialler early(cluster_.endpoint(2));
  early.Claim(From(0, 2, 6));
  Dialler gone(cluster_.endpoint(2));
  gone.Claim(From(0, 2, 6));
  gone.Close();
  EXPECT_FALSE(early.HasAnAnswer(20));
  cluster_.endpoint(2).Fence(6);
  EXPECT_EQ(connecting_.get().code(), StatusCode::kAborted);
  EXPECT_FALSE(early.HasAnAnswer(20)) << "its generation may still come";
  Dialler other(cluster_.endpoint(2));
  other.Claim(From(0, 2, 5));
  EXPECT_EQ(other.Verdicted(), VerdictCode::kStaleGeneration) << "though it was connecting";
  cluster_.endpoint(2).Fence(7);
  EXPECT_EQ(early.Verdicted(), VerdictCode::kStaleGeneration);
}

TEST_F(AdmissionTest, WhoIsHeldIsAdmittedWhenItsGenerationComes) {
  Dialler early(cluster_.endpoint(2));
  Hello hello = From(0, 2, 6);
  hello.traffic_class = 1;
  early.Claim(hello);
  cluster_.endpoint(2).Fence(6);
  EXPECT_EQ(connecting_.get().code(), StatusCode::kAborted);
  GroupOptions options = cluster_.Options(2, 6);
  options.peers = {0};
  auto next = std::async(std::launch::async, [&] {
    return cluster_.endpoint(2).Connect(options, After(kAmple)).status();
  });
  EXPECT_EQ(early.Verdicted(), VerdictCode::kWelcome);
  cluster_.endpoint(2).Fence(9);
  EXPECT_EQ(next.get().code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace heddle::comm
