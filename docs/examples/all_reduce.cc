// Sums a vector over processes: `all_reduce RANK SIZE FOLDER` for each rank below SIZE. They find
// each other through files in FOLDER; any other way to pass addresses around will do.
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/system/file.h"
#include "comm/communicator.h"

int main(int argc, char** argv) {
  using namespace heddle;
  if (argc != 4) return 2;
  const int rank = std::atoi(argv[1]);
  const int size = std::atoi(argv[2]);
  const std::string folder = argv[3];
  const auto fail = [](const Status& status) {
    std::cerr << status.ToString() << "\n";
    return 1;
  };
  metrics::Registry registry;
  auto endpoint = comm::Endpoint::Create({.config = {.worker = "worker-" + std::to_string(rank),
                                                     .job = "example",
                                                     .secret = "what only this job's workers know"},
                                          .metrics = &registry});
  if (!endpoint.ok()) return fail(endpoint.status());
  const Status written = WriteFileAtomically(folder + "/" + argv[1], (*endpoint)->address());
  if (!written.ok()) return fail(written);
  const Deadline deadline = After(std::chrono::seconds(10));
  comm::GroupOptions options{.generation = 1, .rank = rank, .members = {}, .peers = {}};
  for (int i = 0; i < size; ++i) {
    const std::string path = folder + "/" + std::to_string(i);
    while (!FileExists(path)) {
      if (Now() > deadline) return fail(DeadlineExceededError("rank {} did not come", i));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    options.members.push_back({"worker-" + std::to_string(i), *ReadFile(path, 4096)});
    if (i != rank) options.peers.push_back(i);
  }
  auto group = (*endpoint)->Connect(options, deadline);
  if (!group.ok()) return fail(group.status());
  std::vector<float> values(1000, static_cast<float>(rank + 1));
  const Status summed = (*group)->AllReduce(std::as_writable_bytes(std::span(values)), DType::kF32,
                                            comm::ReduceOp::kSum, {});
  if (!summed.ok()) return fail(summed);
  std::cout << "rank " << rank << ": " << values.front() << "\n";
}
