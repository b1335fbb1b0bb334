// Ours: real processes, one Endpoint each, with everything on.
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/support/exchange.h"
#include "benchmarks/support/measure_links.h"
#include "comm/communicator.h"
#include "metrics/registry.h"

namespace {

using exchange::Fail;

void Check(const heddle::Status& status) {
  if (!status.ok()) {
    Fail(status.ToString());
  }
}

class Heddle {
 public:
  Heddle(heddle::comm::Endpoint& endpoint,
         heddle::comm::Communicator& group,
         const exchange::Options& options)
      : endpoint_(endpoint),
        group_(group),
        options_(options) {}

  void AllReduce(float* data, size_t count) {
    Check(group_.AllReduce(std::as_writable_bytes(std::span(data, count)), heddle::DType::kF32,
                           heddle::comm::ReduceOp::kSum, {}));
  }

  double Max(double value) {
    Check(group_.AllReduce(std::as_writable_bytes(std::span(&value, 1)), heddle::DType::kF64,
                           heddle::comm::ReduceOp::kMax, {}));
    return value;
  }

  void Exchange(std::byte* data, size_t bytes) {
    const std::span<std::byte> buffer(data, bytes);
    if (group_.rank() == 0) {
      Check(group_.Send(1, 1, buffer, false).Wait());
      Check(group_.Recv(1, 1, buffer, false).Wait());
    } else {
      Check(group_.Recv(0, 1, buffer, false).Wait());
      Check(group_.Send(0, 1, buffer, false).Wait());
    }
  }

  float* Allocate(size_t bytes) {
    if (options_.memory == "shared") {
      auto buffer = endpoint_.AllocateShared(bytes);
      Check(buffer.status());
      shared_ = *buffer;
      return reinterpret_cast<float*>(shared_.bytes().data());
    }
    private_.resize((bytes + sizeof(float) - 1) / sizeof(float));
    return private_.data();
  }

 private:
  heddle::comm::Endpoint& endpoint_;
  heddle::comm::Communicator& group_;
  const exchange::Options& options_;
  heddle::comm::SharedBuffer shared_;
  std::vector<float> private_;
};

constexpr size_t kAddressBytes = 512;

void ReadWhole(int fd, char* data, size_t size) {
  for (size_t have = 0; have < size;) {
    const ssize_t got = ::read(fd, data + have, size - have);
    if (got <= 0) {
      Fail("a rank ended early");
    }
    have += static_cast<size_t>(got);
  }
}

// One rank; addresses go to the parent through `out`, and all of them come back through `in`.
int RunRank(const exchange::Options& options, int in, int out) {
  heddle::metrics::Registry registry;
  heddle::comm::EndpointOptions settings;
  settings.config = {.worker = "rank-" + std::to_string(options.rank),
                     .job = "benchmark",
                     .secret = "secret",
                     .tls = options.transport == "tls"};
  if (options.transport != "shm") {
    settings.open = {"verbs", "tcp"};
  }
  settings.metrics = &registry;
  auto endpoint = heddle::comm::Endpoint::Create(settings);
  Check(endpoint.status());
  std::vector<char> address(kAddressBytes);
  std::strncpy(address.data(), (*endpoint)->address().c_str(), kAddressBytes - 1);
  if (::write(out, address.data(), kAddressBytes) != static_cast<ssize_t>(kAddressBytes)) {
    Fail("the parent ended");
  }
  heddle::comm::GroupOptions members;
  members.rank = options.rank;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ReadWhole(in, address.data(), kAddressBytes);
    members.members.push_back({"rank-" + std::to_string(rank), address.data()});
    if (rank != options.rank) {
      members.peers.push_back(rank);
    }
  }
  auto group = (*endpoint)->Connect(members, heddle::After(std::chrono::seconds(20)));
  Check(group.status());
  {
    Check(heddle::comm::MeasureLinks(**endpoint, **group));
    Heddle library(**endpoint, **group, options);
    exchange::RunAll(library, options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  exchange::Options options = exchange::Parse(argc, argv);
  std::vector<int> to;
  std::vector<int> from;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    int in[2] = {};
    int out[2] = {};
    if (::pipe(in) != 0 || ::pipe(out) != 0) {
      Fail("no pipe");
    }
    if (::fork() == 0) {
      ::close(in[1]);
      ::close(out[0]);
      const int code = RunRank(options, in[0], out[1]);
      std::fflush(stdout);
      return code;
    }
    ::close(in[0]);
    ::close(out[1]);
    to.push_back(in[1]);
    from.push_back(out[0]);
  }
  std::vector<char> addresses;
  for (const int fd : from) {
    std::vector<char> address(kAddressBytes);
    ReadWhole(fd, address.data(), kAddressBytes);
    addresses.insert(addresses.end(), address.begin(), address.end());
  }
  for (const int fd : to) {
    if (::write(fd, addresses.data(), addresses.size()) != static_cast<ssize_t>(addresses.size())) {
      Fail("a rank ended early");
    }
  }
  int failed = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int status = 0;
    ::wait(&status);
    failed |= status != 0 ? 1 : 0;
  }
  return failed;
}
