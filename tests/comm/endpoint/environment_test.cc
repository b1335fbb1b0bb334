// Machines that are set up narrowly: each case works, or ends with one line that says what to do. A
// case is a process of its own, whose limits and namespaces nobody else sees.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

constexpr int kWorkers = 4;
constexpr int kSkipped = 77;

/// Runs `body` in a process; 0 when no check in it failed, kSkipped when it says so.
int InProcess(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = body();
    std::fflush(nullptr);
    ::_exit(code != 0 ? code : testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define RUN_OR_SKIP(...)                                                    \
  const int code = InProcess(__VA_ARGS__);                                  \
  if (code == kSkipped) {                                                   \
    GTEST_SKIP() << "this process may not change its namespaces or limits"; \
  }                                                                         \
  EXPECT_EQ(code, 0)

/// A group that does what groups do: large and small sums.
void Exercise(Media media) {
  Cluster cluster(kWorkers, media);
  cluster.Run(1, [](int /*rank*/, Communicator& communicator) {
    for (const size_t elements : {size_t{1}, size_t{100000}, size_t{4} << 20}) {
      std::vector<float> values(elements, 1.0F);
      const Status status = communicator.AllReduce(
          RawOf(values), DType::kF32, ReduceOp::kSum,
          {.group = {}, .tag = static_cast<uint64_t>(elements), .deadline = {}});
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(values.back(), static_cast<float>(kWorkers));
    }
  });
}

bool Limit(__rlimit_resource resource, rlim_t most) {
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  return ::setrlimit(resource, &limit) == 0;
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  return file.good();
}

bool BringLoopbackUp() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = socket >= 0 && ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  return up;
}

/// Root is not limited in what it locks while it has CAP_IPC_LOCK.
bool DropLockCapability() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) {
    return false;
  }
  for (auto& word : data) {
    word.inheritable = 0;
  }
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, data) == 0;
}

class EnvironmentTest : public testing::TestWithParam<Media> {};

TEST_P(EnvironmentTest, LockedMemoryOf64KiB) {
  const Media media = GetParam();
  RUN_OR_SKIP([media] {
    if (!DropLockCapability() || !Limit(RLIMIT_MEMLOCK, 64 << 10)) {
      return kSkipped;
    }
    Exercise(media);
    return 0;
  });
}

TEST_P(EnvironmentTest, NoIpv6) {
  const Media media = GetParam();
  RUN_OR_SKIP([media] {
    if (::unshare(CLONE_NEWNET) != 0 || !BringLoopbackUp()) {
      return kSkipped;
    }
    // A kernel without IPv6 has no such file, and nothing to switch off.
    if (std::filesystem::exists("/proc/sys/net/ipv6") &&
        !Write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")) {
      return kSkipped;
    }
    Exercise(media);
    return 0;
  });
}

TEST_P(EnvironmentTest, AThousandDescriptors) {
  const Media media = GetParam();
  RUN_OR_SKIP([media] {
    if (!Limit(RLIMIT_NOFILE, 1000)) {
      return kSkipped;
    }
    Exercise(media);
    return 0;
  });
}

// Shared memory has no name and is no file of /dev/shm: a container's small or read-only one does
// not matter.
TEST_P(EnvironmentTest, NothingCanBeWrittenToDevShm) {
  const Media media = GetParam();
  RUN_OR_SKIP([media] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/dev/shm", "tmpfs", MS_RDONLY, "size=64k") != 0) {
      return kSkipped;
    }
    EXPECT_FALSE(Write("/dev/shm/heddle-test", "x"));
    Exercise(media);
    return 0;
  });
}

// Where no pages are given for shared memory members send messages instead. A limit of files' sizes
// is one such place, and the kernel's signal for it ends nobody.
TEST_P(EnvironmentTest, FilesOf64KiB) {
  const Media media = GetParam();
  RUN_OR_SKIP([media] {
    if (!Limit(RLIMIT_FSIZE, 64 << 10)) {
      return kSkipped;
    }
    Exercise(media);
    return 0;
  });
}

// Where the limit is too low for the group, its connections fail before the deadline and the line
// says why.
TEST_P(EnvironmentTest, TooFewDescriptorsAreSaid) {
  if (kSanitized) {
    GTEST_SKIP() << kSanitizerNeedsDescriptors;
  }
  const Media media = GetParam();
  RUN_OR_SKIP([media] {
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    metrics::Registry registry;
    for (int rank = 0; rank < 2; ++rank) {
      EndpointOptions options;
      options.config.worker = Cluster::Name(rank);
      options.config.job = options.config.secret = "narrow";
      options.open = media.opens(rank);
      options.metrics = &registry;
      auto endpoint = Endpoint::Create(options);
      EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
      endpoints.push_back(*std::move(endpoint));
    }
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    if (!Limit(RLIMIT_NOFILE, static_cast<rlim_t>(next))) {
      return kSkipped;
    }
    GroupOptions options;
    options.generation = 1;
    for (const auto& endpoint : endpoints) {
      options.members.push_back(
          {Cluster::Name(static_cast<int>(options.members.size())), endpoint->address()});
    }
    options.peers = {1};
    const auto communicator = endpoints[0]->Connect(options, After(kAmple));
    EXPECT_FALSE(communicator.ok());
    EXPECT_NE(communicator.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(communicator.status().message().find("open files"), std::string::npos)
        << communicator.status().ToString();
    EXPECT_EQ(communicator.status().message().find('\n'), std::string::npos);
    return 0;
  });
}

INSTANTIATE_TEST_SUITE_P(Media,
                         EnvironmentTest,
                         testing::Values(Media::kShm, Media::kTcp),
                         [](const auto& parameter) { return MediaName(parameter.param); });

}  // namespace
}  // namespace heddle::comm
