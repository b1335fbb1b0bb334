// Whom the coordinator's listener closes where descriptors run out. A process of its own: nobody
// else in it opens or closes descriptors meanwhile, as gRPC's threads do.
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/system/connect.h"
#include "base/system/unique_fd.h"
#include "elastic/grpc/connection/control_listener.h"

namespace heddle::elastic {
namespace {

constexpr auto kPatience = std::chrono::minutes(2);

// So few that each further one is needed for something else; all again at the end.
class ScarceDescriptors {
 public:
  ScarceDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const UniqueFd lowest(::dup(0));
    rlimit scarce = before_;
    // A fourth is kept for files, pipes and members where there are so few.
    scarce.rlim_cur = (static_cast<rlim_t>(lowest.get()) * 4 + 2) / 3;
    ::setrlimit(RLIMIT_NOFILE, &scarce);
  }
  ~ScarceDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  ScarceDescriptors(const ScarceDescriptors&) = delete;
  ScarceDescriptors& operator=(const ScarceDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// A listener and its peers. The first connection that it hands over keeps it from its next look until
/// GoOn, so that others have spoken before it.
class ControlListenerRoomTest : public testing::Test {
 protected:
  void SetUp() override {
    auto listener = ControlListener::Open("127.0.0.1:0", kPatience);
    ASSERT_TRUE(listener.ok());
    listener_ = *std::move(listener);
    listener_->Start([this](UniqueFd connection, char /*first_byte*/) {
      const MutexLock lock(mutex_);
      taken_.push_back(std::move(connection));
      changed_.NotifyAll();
      for (const Deadline until = After(kPatience); !go_on_ && Now() < until;) {
        changed_.WaitUntil(mutex_, until);
      }
    });
  }
  UniqueFd Connect() {
    auto fd = ConnectTo("127.0.0.1:" + std::to_string(listener_->port()), After(kPatience));
    EXPECT_TRUE(fd.ok()) << fd.status().ToString();
    return fd.ok() ? *std::move(fd) : UniqueFd();
  }
  static void Speak(const UniqueFd& fd) { ASSERT_EQ(::send(fd.get(), "x", 1, MSG_NOSIGNAL), 1); }
  static bool Closes(const UniqueFd& fd) {
    pollfd polled{.fd = fd.get(), .events = POLLIN, .revents = 0};
    return ::poll(&polled, 1, std::chrono::milliseconds(kPatience).count()) == 1;
  }
  bool AwaitTaken(size_t count) {
    const MutexLock lock(mutex_);
    for (const Deadline until = After(kPatience); taken_.size() < count && Now() < until;) {
      changed_.WaitUntil(mutex_, until);
    }
    return taken_.size() >= count;
  }
  void GoOn() {
    const MutexLock lock(mutex_);
    go_on_ = true;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<UniqueFd> taken_;
  bool go_on_ = false;
  std::unique_ptr<ControlListener> listener_;  // Last: it uses what stands above.
};

TEST_F(ControlListenerRoomTest, WhoSaysNothingMakesRoomAtOnceAndAStrangerLater) {
  const UniqueFd silent = Connect();
  const UniqueFd one = Connect();
  const UniqueFd other = Connect();
  const UniqueFd stranger = Connect();
  Speak(stranger);
  ASSERT_TRUE(AwaitTaken(1));
  Speak(one);
  Speak(other);
  const ScarceDescriptors scarce;
  GoOn();
  EXPECT_TRUE(Closes(silent));
  EXPECT_TRUE(AwaitTaken(2)) << "there was room";
  EXPECT_TRUE(Closes(stranger));
  EXPECT_TRUE(AwaitTaken(3)) << "who had spoken waits until there is room";
}

}  // namespace
}  // namespace heddle::elastic
