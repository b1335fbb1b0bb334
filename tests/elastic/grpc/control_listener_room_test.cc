// Whom the coordinator's listener closes where descriptors run out. A process of its own: nobody
// else in it opens or closes descriptors meanwhile, as gRPC's threads do.
#include <array>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/system/connect.h"
#include "base/system/unique_fd.h"
#include "elastic/grpc/connection/control_listener.h"

namespace heddle::elastic {
namespace {

constexpr Duration kPatience = std::chrono::minutes(2);

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

TEST(ControlListenerRoomTest, WhoSaysNothingMakesRoomForThoseThatSpokeAtOnce) {
  auto listener = ControlListener::Open("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  Mutex mutex;
  CondVar changed;
  std::vector<UniqueFd> taken;
  bool go_on = false;
  // The first one keeps the listener from its next look, so that the others have spoken before it.
  (*listener)->Start([&](UniqueFd connection, char /*first_byte*/) {
    const MutexLock lock(mutex);
    taken.push_back(std::move(connection));
    changed.NotifyAll();
    for (const Deadline until = After(kPatience); !go_on && Now() < until;) {
      changed.WaitUntil(mutex, until);
    }
  });
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 4; ++i) {
    auto fd = ConnectTo("127.0.0.1:" + std::to_string((*listener)->port()), After(kPatience));
    ASSERT_TRUE(fd.ok()) << fd.status().ToString();
    peers.push_back(std::move(*fd));
  }
  const auto await_taken = [&](size_t count) {
    const MutexLock lock(mutex);
    for (const Deadline until = After(kPatience); taken.size() < count && Now() < until;) {
      changed.WaitUntil(mutex, until);
    }
    return taken.size() == count;
  };
  ASSERT_EQ(::send(peers[3].get(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(await_taken(1));
  ASSERT_EQ(::send(peers[1].get(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_EQ(::send(peers[2].get(), "x", 1, MSG_NOSIGNAL), 1);
  {
    const ScarceDescriptors scarce;
    {
      const MutexLock lock(mutex);
      go_on = true;
      changed.NotifyAll();
    }
    EXPECT_TRUE(await_taken(2)) << "there was room when the first of the two had found none";
  }
  pollfd silent{.fd = peers[0].get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&silent, 1, 1000), 1) << "who said nothing makes room";
  // Which of the two is looked at first is the kernel's choice.
  std::array<pollfd, 2> spoken{pollfd{.fd = peers[1].get(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = peers[2].get(), .events = POLLIN, .revents = 0}};
  EXPECT_EQ(::poll(spoken.data(), spoken.size(), 1000), 1);
  (*listener)->Close();
}

}  // namespace
}  // namespace heddle::elastic
