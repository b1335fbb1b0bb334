// Whose events are followed, and how long.
#include "elastic/service/inspect/event_source.h"

#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "base/system/file.h"
#include "base/system/socket_address.h"
#include "base/system/unique_fd.h"
#include "base/thread.h"
#include "elastic/grpc/server.h"
#include "elastic/identity/authority.h"

namespace heddle::elastic {
namespace {

constexpr const char* kStarted =
    "{\"time\": 1.0, \"event\": \"job_started\", \"job\": \"a\", \"steps\": 1, \"workers\": 1}\n";
constexpr const char* kFinished =
    "{\"time\": 2.0, \"event\": \"job_finished\", \"step\": 1, \"loss\": 0.5}\n";

class EventSourceTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomically(run_ + "/" + name, content).ok());
  }
  // Follows in a thread what the run's folder has.
  void Follow(const Credentials& credentials = {}) {
    auto source = EventSource::OfFolder(run_, "", credentials);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    follower_ = Thread("follower", [this, source = *std::move(source)]() mutable {
      status_ = source.Follow([this](const RunEvent& event) {
        kinds_.push_back(event.event.kind);
        return true;
      });
    });
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_.path();
  std::vector<std::string> kinds_;  // The follower's until it has ended.
  Status status_;                   // Likewise.
  Thread follower_;
};

TEST_F(EventSourceTest, NobodyIsFollowedWhereNoCoordinatorIs) {
  Write("events.jsonl", kStarted);
  Write("job.json", "{\"coordinator\": \"127.0.0.1:1\"}");
  Follow();
  follower_.Join();
  EXPECT_TRUE(status_.ok()) << status_.ToString();
  EXPECT_EQ(kinds_, std::vector<std::string>{"job_started"});
}

// Who reads the folder without a certificate does not ask a coordinator that would refuse it.
TEST_F(EventSourceTest, AGuardedCoordinatorIsOnlyConnectedTo) {
  SocketAddress address = *ParseSocketAddress("127.0.0.1:0");
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto* const raw = reinterpret_cast<sockaddr*>(&address.storage);
  ASSERT_EQ(::bind(listener.get(), raw, address.length), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), raw, &address.length), 0);
  Write("events.jsonl", kStarted);
  Write("job.json", "{\"coordinator\": \"127.0.0.1:" + std::to_string(PortOf(address)) +
                        "\", \"certificates\": true}");
  Follow();
  for (int i = 0; i < 2; ++i) {  // It looks a second time if the answer was a yes.
    pollfd polled{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&polled, 1, 30'000), 1);
    const UniqueFd met(::accept(listener.get(), nullptr, nullptr));
    char byte = 0;
    EXPECT_EQ(::recv(met.get(), &byte, 1, 0), 0) << "it says nothing";
  }
  Write("events.jsonl", std::string(kStarted) + kFinished);
  follower_.Join();
  EXPECT_TRUE(status_.ok()) << status_.ToString();
  EXPECT_EQ(kinds_, (std::vector<std::string>{"job_started", "job_finished"}));
}

TEST_F(EventSourceTest, WithACertificateTheCoordinatorIsAsked) {
  const std::string lab = folder_.path() + "/lab";
  ASSERT_TRUE(InitAuthority(lab, {}, 2).ok());
  int refused = 0;  // Under the mutex.
  Mutex mutex;
  CondVar changed;
  CoordinatorServerOptions options;
  options.credentials = *ReadCredentials(lab + "/coordinator");
  options.hooks.refused = [&](std::string_view /*reason*/) {
    const MutexLock lock(mutex);
    ++refused;
  };
  const auto server = CoordinatorServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  Write("events.jsonl", kStarted);
  Write("job.json", "{\"coordinator\": \"" + (*server)->address() + "\", \"certificates\": true}");
  Follow(*ReadCredentials(lab + "/viewer"));
  {
    const MutexLock lock(mutex);
    for (const Deadline later = After(std::chrono::seconds(5)); Now() < later;) {  // Asked twice.
      changed.WaitUntil(mutex, later);
    }
    EXPECT_EQ(refused, 0);
  }
  Write("events.jsonl", std::string(kStarted) + kFinished);
  follower_.Join();
  EXPECT_TRUE(status_.ok()) << status_.ToString();
  EXPECT_EQ(kinds_, (std::vector<std::string>{"job_started", "job_finished"}));
}

}  // namespace
}  // namespace heddle::elastic
