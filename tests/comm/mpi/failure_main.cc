// One rank of an MPI job in which a rank dies or is stopped in the middle of all-reduces. Whoever
// survives says what its call ended with, and when. Started by failure_test.py.
//
//   failure_main kill|stop|absent|late|exhausted
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "comm/mpi/world.h"

namespace heddle::comm {
namespace {

constexpr int kVictim = 1;

/// Short where a loss shows by it; elsewhere a machine that stands still for a moment is no loss.
Duration SilenceOf(const std::string& how) {
  return std::chrono::seconds(how == "kill" || how == "stop" ? 1 : 5);
}

int Say(int rank, const Status& status, Time since) {
  std::printf("rank-%d: %s after %.3f s\n", rank, status.ToString().c_str(),
              Seconds(Now() - since));
  std::fflush(stdout);
  return status.ok() ? 0 : 3;
}

// The launcher ends every rank once the first has ended: the others have their say before.
void LetOthersSpeak() {
  std::this_thread::sleep_for(std::chrono::seconds(2));
}

// Connects where no descriptors are left, which fails here alone and may be tried again.
void ConnectWithoutDescriptors(MpiWorld& world) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int lowest_free = ::dup(STDIN_FILENO);
  ::close(lowest_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const Time begin = Now();
  const auto refused = world.Connect(1, std::chrono::seconds(20), After(std::chrono::seconds(1)));
  ::setrlimit(RLIMIT_NOFILE, &before);
  Say(kVictim, refused.status(), begin);
}

int RunRank(const std::string& how) {
  metrics::Registry registry;
  auto world =
      MpiWorld::Start({.name = "", .silence_timeout = SilenceOf(how), .metrics = &registry},
                      After(std::chrono::seconds(30)));
  if (!world.ok()) {
    return Say(-1, world.status(), Now());
  }
  const int rank = (*world)->rank();
  if (how == "absent" && rank == kVictim) {
    std::this_thread::sleep_for(std::chrono::seconds(5));  // Never comes to Connect in time.
  }
  if (how == "exhausted" && rank == kVictim) {
    ConnectWithoutDescriptors(**world);
  }
  const Time begin = Now();
  auto communicator = (*world)->Connect(how == "late" && rank == kVictim ? 2 : 1,
                                        std::chrono::seconds(20), After(std::chrono::seconds(2)));
  if (!communicator.ok()) {
    const int code = Say(rank, communicator.status(), begin);
    LetOthersSpeak();
    _exit(code);
  }
  // Whoever sees a loss first tells the others.
  (*communicator)->OnPeerLost([&](int /*peer*/, const Status& reason) {
    (*communicator)->Abort(reason);
  });
  std::vector<float> values(100000, 1.0F);
  Time since = Now();
  const uint64_t rounds = how == "exhausted" ? 20 : 100000;
  for (uint64_t round = 0; round < rounds; ++round) {
    if (rank == kVictim && round == 20) {
      ::raise(how == "kill" ? SIGKILL : SIGSTOP);
    }
    since = Now();
    const Status status =
        (*communicator)
            ->AllReduce(std::as_writable_bytes(std::span(values)), DType::kF32, ReduceOp::kMax,
                        {.group = {}, .tag = round, .deadline = {}});
    if (!status.ok()) {
      const int code = Say(rank, status, since);
      communicator->reset();
      const Time finishing = Now();
      const Status finished = (*world)->Finish(After(std::chrono::seconds(1)));
      std::printf("rank-%d finish: %s after %.3f s\n", rank, finished.ToString().c_str(),
                  Seconds(Now() - finishing));
      std::fflush(stdout);
      LetOthersSpeak();
      return code;
    }
  }
  Say(rank, Status::Ok(), since);
  communicator->reset();
  return (*world)->Finish(After(std::chrono::seconds(10))).ok() ? 0 : 4;
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) {
  return argc == 2 ? heddle::comm::RunRank(argv[1]) : 2;
}
