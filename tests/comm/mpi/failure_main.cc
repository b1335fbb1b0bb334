// One rank of an MPI job in which a rank dies or is stopped in the middle of all-reduces. Whoever
// survives says what its call ended with. Started by failure_test.py.
//
//   failure_main kill|stop|absent|late|exhausted FOLDER
//
// FOLDER: where the ranks leave word that they have said what they have to say.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "comm/mpi/world.h"

namespace heddle::comm {
namespace {

constexpr int kVictim = 1;

/// What only a fault exceeds, however busy the machine is.
constexpr Duration kAmple = std::chrono::minutes(1);

/// Short where a loss shows by it, though long for ranks that live to be late with a sign of it.
Duration SilenceOf(const std::string& how) {
  return how == "kill" || how == "stop" ? std::chrono::seconds(2) : kAmple;
}

int Say(int rank, const Status& status) {
  std::printf("rank-%d: %s\n", rank, status.ToString().c_str());
  std::fflush(stdout);
  return status.ok() ? 0 : 3;
}

// The launcher ends every rank once the first has ended: the others have their say before.
void LetOthersSpeak(const std::filesystem::path& folder, int rank, int size) {
  std::ofstream(folder / std::to_string(rank)).flush();
  const Deadline deadline = After(kAmple);
  for (int other = 0; other < size && Now() < deadline;) {
    if (other == kVictim || std::filesystem::exists(folder / std::to_string(other))) {
      ++other;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

// Connects where no descriptors are left, which fails here alone and may be tried again.
void ConnectWithoutDescriptors(MpiWorld& world) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int lowest_free = ::dup(STDIN_FILENO);
  ::close(lowest_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto refused = world.Connect(1, kAmple, After(kAmple));
  ::setrlimit(RLIMIT_NOFILE, &before);
  Say(kVictim, refused.status());
}

int RunRank(const std::string& how, const std::filesystem::path& folder) {
  metrics::Registry registry;
  auto world = MpiWorld::Start(
      {.name = "", .silence_timeout = SilenceOf(how), .metrics = &registry}, After(kAmple));
  if (!world.ok()) {
    return Say(-1, world.status());
  }
  const int rank = (*world)->rank();
  const int size = (*world)->size();
  if (how == "absent" && rank == kVictim) {  // Comes to nothing while the others wait.
    LetOthersSpeak(folder, rank, size);
    _exit(3);
  }
  if (how == "exhausted" && rank == kVictim) {
    ConnectWithoutDescriptors(**world);
  }
  auto communicator =
      (*world)->Connect(how == "late" && rank == kVictim ? 2 : 1, kAmple,
                        After(how == "absent" ? std::chrono::milliseconds(500) : kAmple));
  if (!communicator.ok()) {
    const int code = Say(rank, communicator.status());
    LetOthersSpeak(folder, rank, size);
    _exit(code);
  }
  // Whoever sees a loss first tells the others.
  (*communicator)->OnPeerLost([&](int /*peer*/, const Status& reason) {
    (*communicator)->Abort(reason);
  });
  std::vector<float> values(100000, 1.0F);
  const uint64_t rounds = how == "exhausted" ? 20 : 100000;
  for (uint64_t round = 0; round < rounds; ++round) {
    if (rank == kVictim && round == 20) {
      ::raise(how == "kill" ? SIGKILL : SIGSTOP);
    }
    const Status status =
        (*communicator)
            ->AllReduce(std::as_writable_bytes(std::span(values)), DType::kF32, ReduceOp::kMax,
                        {.group = {}, .tag = round, .deadline = {}});
    if (!status.ok()) {
      const int code = Say(rank, status);
      communicator->reset();
      const Status finished = (*world)->Finish(After(std::chrono::milliseconds(500)));
      std::printf("rank-%d finish: %s\n", rank, finished.ToString().c_str());
      std::fflush(stdout);
      LetOthersSpeak(folder, rank, size);
      return code;
    }
  }
  Say(rank, Status::Ok());
  communicator->reset();
  return (*world)->Finish(After(kAmple)).ok() ? 0 : 4;
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) {
  return argc == 3 ? heddle::comm::RunRank(argv[1], argv[2]) : 2;
}
