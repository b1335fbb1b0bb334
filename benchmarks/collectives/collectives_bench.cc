// One worker of a group that runs collectives: collectives_bench RANK SIZE FOLDER HOST shm|tcp
// TASK…
//
// Workers find each other through files in FOLDER. Tasks, each with its own figures:
//   links ISLANDS            tells the members' links: ranks in an island (ISLANDS many,
//   contiguous)
//                            are taken to be a hundred times faster than those between islands
//   measure                  measures all links, pair by pair, and tells them
//   allreduce BYTES N        fp32 sums by everyone
//   inside BYTES N ISLANDS   the same inside each island in turn; the others wait
//   allgather BYTES N C,C…   shares in the proportion C, one a rank; bytes in sum
//   reducescatter BYTES N C,C…
//   padded BYTES N C,C…      all-gather of shares padded to the largest, and the copy that drops
//                            the padding
//   paddedscatter BYTES N C,C…
//   overlap BYTES N          sums beside products of matrices and small messages (overlap.h);
//   prints its six figures and 0
//   exact BYTES N VALUES     reproducible sums of VALUES vectors a rank (exact_sums.h): prints the
//   line
//                            exact, in shared memory, and the line exactmessages
// Each prints "TASK SECONDS… BYTES" at rank 0: the time of each of N calls at the slowest rank, and
// the bytes that all ranks sent in one call. Exit code 1: an error, in one line.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/system/file.h"
#include "benchmarks/collectives/exact_sums.h"
#include "benchmarks/collectives/overlap.h"
#include "benchmarks/support/measure_links.h"
#include "comm/communicator.h"

namespace heddle::comm {
namespace {

constexpr size_t kElement = sizeof(float);
constexpr int kCallsInside = 100;
constexpr uint64_t kOverlapTag = uint64_t{1} << 32;
constexpr uint64_t kExactTag = uint64_t{2} << 32;

struct Shares {
  std::vector<int64_t> counts;  ///< Elements.
  int64_t total = 0;
  int64_t largest = 0;
};

class Bench {
 public:
  Bench(const EndpointOptions& options, Endpoint& endpoint, Communicator& group)
      : options_(options),
        endpoint_(endpoint),
        group_(group) {}

  Status Run(std::istream& tasks) {
    std::string task;
    while (tasks >> task) {
      HEDDLE_RETURN_IF_ERROR(One(task, tasks));
    }
    return group_.Barrier(Next());
  }

 private:
  CollectiveOptions Next() { return {.group = {}, .tag = ++tag_, .deadline = {}}; }

  Status One(const std::string& task, std::istream& arguments) {
    if (task == "links") {
      int islands = 1;
      arguments >> islands;
      return TellLinks(islands);
    }
    if (task == "measure") {
      return MeasureLinks(endpoint_, group_);
    }
    int64_t bytes = 0;
    int repetitions = 0;
    arguments >> bytes >> repetitions;
    if (task == "allreduce") {
      Bytes buffer(static_cast<size_t>(bytes));
      return Time(task, repetitions,
                  [&] { return group_.AllReduce(buffer, DType::kF32, ReduceOp::kSum, Next()); });
    }
    if (task == "overlap") {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<double> figures,
                              MeasureOverlap(group_, bytes, repetitions, kOverlapTag));
      if (group_.rank() == 0) {
        std::cout << fmt::format("overlap {} 0", fmt::join(figures, " ")) << std::endl;
      }
      return Status::Ok();
    }
    if (task == "exact") {
      int values = 1;
      arguments >> values;
      HEDDLE_ASSIGN_OR_RETURN(
          const ExactSumTimes times,
          MeasureExactSums(options_, group_, bytes, values, repetitions, kExactTag));
      HEDDLE_RETURN_IF_ERROR(Tell(task, times.shared, 0));
      return Tell(task + "messages", times.messages, 0);
    }
    if (task == "inside") {
      int islands = 1;
      arguments >> islands;
      return Inside(bytes, repetitions, islands);
    }
    return Uneven(task, repetitions, ReadShares(bytes, arguments));
  }

  int IslandOf(int rank, int islands) const { return rank * islands / group_.size(); }

  Status TellLinks(int islands) {
    std::vector<Link> row(static_cast<size_t>(group_.size()));
    for (int rank = 0; rank < group_.size(); ++rank) {
      const bool near = IslandOf(rank, islands) == IslandOf(group_.rank(), islands);
      row[static_cast<size_t>(rank)].bytes_per_second = near ? 2e9 : 2e7;
    }
    return group_.ShareLinks(row, Next());
  }

  Status Inside(int64_t bytes, int repetitions, int islands) {
    for (int island = 0; island < islands; ++island) {
      std::vector<int> members;
      for (int rank = 0; rank < group_.size(); ++rank) {
        if (IslandOf(rank, islands) == island) {
          members.push_back(rank);
        }
      }
      const bool takes_part = IslandOf(group_.rank(), islands) == island;
      Bytes buffer(static_cast<size_t>(bytes));
      const auto call = [&](std::span<std::byte> vector) {
        CollectiveOptions options = Next();  // The others' tags go on, too.
        options.group = members;
        return takes_part ? group_.AllReduce(vector, DType::kF32, ReduceOp::kSum, options)
                          : Status::Ok();
      };
      const auto calls = [&]() -> Status {
        for (int i = 0; i < kCallsInside; ++i) {
          HEDDLE_RETURN_IF_ERROR(call(buffer));
        }
        return Status::Ok();
      };
      // Members leave a barrier of all one after the other, the later the slower the link.
      const auto meet = [&]() -> Status {
        HEDDLE_RETURN_IF_ERROR(group_.Barrier(Next()));
        return call(std::span(buffer).first(kElement));
      };
      HEDDLE_RETURN_IF_ERROR(Time("inside", repetitions, calls, meet));
    }
    return Status::Ok();
  }

  Shares ReadShares(int64_t bytes, std::istream& arguments) const {
    std::string list;
    arguments >> list;
    std::istringstream parts(list);
    std::vector<int64_t> weights;
    for (std::string part; std::getline(parts, part, ',');) {
      weights.push_back(std::max(0L, std::strtol(part.c_str(), nullptr, 10)));
    }
    weights.resize(static_cast<size_t>(group_.size()), 0);
    const int64_t sum =
        std::max<int64_t>(1, std::accumulate(weights.begin(), weights.end(), int64_t{0}));
    Shares shares;
    for (const int64_t weight : weights) {
      shares.counts.push_back(bytes / static_cast<int64_t>(kElement) * weight / sum);
      shares.total += shares.counts.back();
      shares.largest = std::max(shares.largest, shares.counts.back());
    }
    return shares;
  }

  Status Uneven(const std::string& task, int repetitions, const Shares& shares) {
    const auto size = static_cast<size_t>(group_.size());
    const auto rank = static_cast<size_t>(group_.rank());
    const auto bytes = [](int64_t elements) { return static_cast<size_t>(elements) * kElement; };
    const std::vector<int64_t> even(size, shares.largest);
    Bytes share(bytes(shares.counts[rank]));
    Bytes whole(bytes(shares.total));
    Bytes padded_share(bytes(shares.largest));
    Bytes padded_whole(size * padded_share.size());
    if (task == "allgather") {
      return Time(task, repetitions, [&] {
        return group_.AllGather(share, whole, shares.counts, DType::kF32, Next());
      });
    }
    if (task == "reducescatter") {
      return Time(task, repetitions, [&] {
        return group_.ReduceScatter(whole, share, shares.counts, DType::kF32, ReduceOp::kSum,
                                    Next());
      });
    }
    // Between the whole vector and one in which every share has the largest one's size.
    const auto copy = [&](bool pad) {
      size_t at = 0;
      for (size_t i = 0; i < size; ++i) {
        const size_t length = bytes(shares.counts[i]);
        std::byte* padded = padded_whole.data() + i * padded_share.size();
        std::memcpy(pad ? padded : whole.data() + at, pad ? whole.data() + at : padded, length);
        at += length;
      }
    };
    if (task == "padded") {
      return Time(task, repetitions, [&] {
        std::memcpy(padded_share.data(), share.data(), share.size());
        const Status status =
            group_.AllGather(padded_share, padded_whole, even, DType::kF32, Next());
        copy(false);
        return status;
      });
    }
    if (task == "paddedscatter") {
      return Time(task, repetitions, [&] {
        copy(true);
        const Status status = group_.ReduceScatter(padded_whole, padded_share, even, DType::kF32,
                                                   ReduceOp::kSum, Next());
        std::memcpy(share.data(), padded_share.data(), share.size());
        return status;
      });
    }
    return InvalidArgumentError("no task '{}'", task);
  }

  int64_t Sent() const {
    const std::vector<int64_t> sent = group_.BytesSent();
    return std::accumulate(sent.begin(), sent.end(), int64_t{0});
  }

  // One call more than asked for, which nobody counts.
  template <typename Call>
  Status Time(const std::string& task, int repetitions, Call call) {
    return Time(task, repetitions, call, [&] { return group_.Barrier(Next()); });
  }
  /// `meet`: before each, untimed.
  template <typename Call, typename Meet>
  Status Time(const std::string& task, int repetitions, Call call, Meet meet) {
    std::vector<double> seconds;
    int64_t sent = 0;
    for (int i = 0; i <= repetitions; ++i) {
      HEDDLE_RETURN_IF_ERROR(meet());
      const int64_t before = Sent();
      const auto begun = Now();
      HEDDLE_RETURN_IF_ERROR(call());
      const double took = Seconds(Now() - begun);
      sent = Sent() - before;
      if (i > 0) {
        seconds.push_back(took);
      }
    }
    return Tell(task, std::move(seconds), sent);
  }

  // The times at the slowest rank, and what all have sent.
  Status Tell(const std::string& task, std::vector<double> seconds, int64_t sent) {
    ByteWriter writer;
    for (const double one : seconds) {
      writer.Put(one);
    }
    writer.Put(sent);
    HEDDLE_ASSIGN_OR_RETURN(const auto records, group_.AllGatherBytes(writer.bytes(), Next()));
    int64_t all_sent = 0;
    for (const Bytes& record : records) {
      ByteReader reader(record);
      for (double& one : seconds) {
        HEDDLE_ASSIGN_OR_RETURN(const double other, reader.Get<double>());
        one = std::max(one, other);
      }
      HEDDLE_ASSIGN_OR_RETURN(const int64_t other_sent, reader.Get<int64_t>());
      all_sent += other_sent;
    }
    if (group_.rank() == 0) {
      std::cout << fmt::format("{} {} {}", task, fmt::join(seconds, " "), all_sent) << std::endl;
    }
    return Status::Ok();
  }

  const EndpointOptions& options_;
  Endpoint& endpoint_;
  Communicator& group_;
  uint64_t tag_ = 1000;
};

Status Main(int argc, char** argv) {
  if (argc < 7) {
    return InvalidArgumentError("usage: {} RANK SIZE FOLDER HOST shm|tcp|tcp:STREAMS TASK…",
                                argv[0]);
  }
  const int rank = std::atoi(argv[1]);
  const int size = std::atoi(argv[2]);
  const std::string folder = argv[3];
  metrics::Registry registry;
  EndpointOptions endpoint_options;
  endpoint_options.config = {
      .worker = "worker-" + std::to_string(rank), .job = "benchmark", .secret = folder};
  endpoint_options.bind_host = argv[4];
  const std::string medium = argv[5];
  if (medium != "shm") {
    endpoint_options.open = {"verbs", "tcp"};
  }
  if (medium.starts_with("tcp:")) {
    endpoint_options.transport_options["tcp"]["streams"] = medium.substr(4);
  }
  endpoint_options.metrics = &registry;
  HEDDLE_ASSIGN_OR_RETURN(const auto endpoint, Endpoint::Create(endpoint_options));
  HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(folder + "/" + argv[1], endpoint->address()));
  GroupOptions options;
  options.generation = 1;
  options.rank = rank;
  options.operation_timeout = std::chrono::seconds(120);
  const Deadline deadline = After(std::chrono::seconds(20));
  for (int i = 0; i < size; ++i) {
    const std::string path = folder + "/" + std::to_string(i);
    while (!FileExists(path)) {
      if (Now() > deadline) {
        return DeadlineExceededError("worker-{} is not there", i);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string address, ReadFile(path, 4096));
    options.members.push_back({"worker-" + std::to_string(i), address});
    if (i != rank) {
      options.peers.push_back(i);
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto group, endpoint->Connect(options, deadline));
  std::stringstream tasks;
  for (int i = 6; i < argc; ++i) {
    tasks << argv[i] << ' ';
  }
  return Bench(endpoint_options, *endpoint, *group).Run(tasks);
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) {
  const heddle::Status status = heddle::comm::Main(argc, argv);
  if (!status.ok()) {
    std::cerr << status.ToString() << "\n";
  }
  return status.ok() ? 0 : 1;
}
