// One rank of an MPI job in which a rank dies or is stopped in the middle of all-reduces. Whoever
// survives says what its call ended with, and when. Started by failure_test.py.
//
//   failure_main kill|stop|absent|late
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "comm/mpi/world.h"

namespace heddle::comm {
namespace {

constexpr int kVictim = 1;
constexpr Duration kSilence = std::chrono::seconds(1);

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

int RunRank(const std::string& how) {
  metrics::Registry registry;
  auto world = MpiWorld::Start({.name = "", .silence_timeout = kSilence, .metrics = &registry},
                               After(std::chrono::seconds(30)));
  if (!world.ok()) {
    return Say(-1, world.status(), Now());
  }
  const int rank = (*world)->rank();
  if (how == "absent" && rank == kVictim) {
    std::this_thread::sleep_for(std::chrono::seconds(5));  // Never comes to Connect in time.
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
  for (uint64_t round = 0; round < 100000; ++round) {
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
  return 0;
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) {
  return argc == 2 ? heddle::comm::RunRank(argv[1]) : 2;
}
