// One worker of a group, a process of its own: faults_test.py starts several, commands them on
// their standard input, and does to them what may befall them.
//
//   member NAME BIND_HOST TRANSPORT [RDMA_DEVICE]
//
// clang-format off
//   form GENERATION RANK TIMEOUT_MS NAME=ADDRESS…   forms a group           -> formed SECONDS
//   run OPERATION BYTES                             calls it until an error -> running, ended NANOSECONDS CODE MESSAGE
//   once OPERATION BYTES                            calls it once           -> once CODE MESSAGE
//   leave                                           drops the group         -> left DESCRIPTORS THREADS
// clang-format on
//
// The first line is `address ADDRESS`. Times are those of the machine's monotonic clock. A command
// that cannot be carried out answers `error MESSAGE`.
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include <unistd.h>

#include "comm/communicator.h"
#include "metrics/registry.h"

namespace heddle::comm {
namespace {

std::vector<int64_t> SharesOf(int64_t elements, int members) {
  // Uneven: member i has i + 1 parts.
  const int64_t parts = static_cast<int64_t>(members) * (members + 1) / 2;
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (int i = 0; i + 1 < members; ++i) {
    counts.push_back(elements * (i + 1) / parts);
    sum += counts.back();
  }
  counts.push_back(elements - sum);
  return counts;
}

/// Calls one collective again and again; its buffers are its own.
class Operation {
 public:
  Operation(Communicator& group, const std::string& name, size_t bytes)
      : group_(group),
        floats_(static_cast<int64_t>(bytes) / 4),
        counts_(SharesOf(floats_, group.size())),
        whole_(static_cast<size_t>(floats_) * 4),
        other_(whole_.size()),
        call_(Calls().at(name)) {}

  static bool Known(const std::string& name) { return Calls().contains(name); }
  Status Call() { return (this->*call_)(); }

 private:
  using Member = Status (Operation::*)();
  static const std::map<std::string, Member>& Calls() {
    static const std::map<std::string, Member> calls = {
        {"messages", &Operation::Messages},
        {"all_reduce", &Operation::AllReduce},
        {"reduce_scatter", &Operation::ReduceScatter},
        {"all_gather", &Operation::AllGather},
        {"all_to_all", &Operation::AllToAll},
        {"broadcast", &Operation::Broadcast},
        {"barrier", &Operation::Barrier},
        {"records", &Operation::Records},
        {"reduce_tree", &Operation::ReduceTree}};
    return calls;
  }

  std::span<std::byte> Part(Bytes& bytes, int index) const {
    const size_t size = bytes.size() / static_cast<size_t>(group_.size());
    return std::span(bytes).subspan(static_cast<size_t>(index) * size, size);
  }
  std::span<std::byte> Share(Bytes& bytes) const {
    const auto own = static_cast<size_t>(group_.rank());
    return std::span(bytes).first(static_cast<size_t>(counts_[own]) * 4);
  }

  // Everyone to everyone.
  Status Messages() {
    std::vector<Work> works;
    for (int peer = 0; peer < group_.size(); ++peer) {
      if (peer != group_.rank()) {
        works.push_back(group_.Recv(peer, 1, Part(other_, peer), false));
        works.push_back(group_.Send(peer, 1, Part(whole_, peer), false));
      }
    }
    for (const Work& work : works) {
      HEDDLE_RETURN_IF_ERROR(work.Wait());
    }
    return Status::Ok();
  }
  Status AllReduce() { return group_.AllReduce(whole_, DType::kF32, ReduceOp::kSum, {}); }
  Status ReduceScatter() {
    return group_.ReduceScatter(whole_, Share(other_), counts_, DType::kF32, ReduceOp::kSum, {});
  }
  Status AllGather() { return group_.AllGather(Share(other_), whole_, counts_, DType::kF32, {}); }
  Status AllToAll() {
    const std::vector<int64_t> each(static_cast<size_t>(group_.size()), floats_ / group_.size());
    const size_t bytes = static_cast<size_t>(each[0]) * 4 * each.size();
    return group_.AllToAll(std::span(whole_).first(bytes), each, std::span(other_).first(bytes),
                           each, DType::kF32, {});
  }
  Status Broadcast() {
    const Status status = group_.Broadcast(whole_, root_, {});
    root_ = (root_ + 1) % group_.size();
    return status;
  }
  Status Barrier() { return group_.Barrier({}); }
  Status Records() { return group_.AllGatherBytes(Share(other_), {}).status(); }
  Status ReduceTree() {
    TreeContributions contributions;
    for (int i = 0; i < group_.size(); ++i) {
      contributions.nodes.push_back({TreeNode{.level = 0, .index = i}});
    }
    const std::span<const std::byte> mine(other_);
    return group_.ReduceTree(contributions, std::span(&mine, 1), whole_, DType::kF32, {});
  }

  Communicator& group_;
  const int64_t floats_;
  const std::vector<int64_t> counts_;
  Bytes whole_;
  Bytes other_;
  int root_ = 0;
  const Member call_;
};

std::string OneLine(const Status& status) {
  std::string text = status.ok() ? "OK" : status.ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int64_t EntriesOf(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

class Member {
 public:
  Member(std::string name, std::unique_ptr<Endpoint> endpoint)
      : name_(std::move(name)),
        endpoint_(std::move(endpoint)) {}

  void Obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "form") {
      Form(words);
    } else if (command == "leave") {
      group_.reset();
      Answer(fmt::format("left {} {}", EntriesOf("/proc/self/fd"), EntriesOf("/proc/self/task")));
    } else if ((command == "run" || command == "once") && group_ != nullptr) {
      std::string name;
      size_t bytes = 0;
      words >> name >> bytes;
      if (!words || !Operation::Known(name)) {
        Answer("error no such operation: " + line);
      } else {
        Call(command == "run", name, bytes);
      }
    } else {
      Answer("error no such command now: " + line);
    }
  }

  static void Answer(const std::string& text) { std::cout << text << std::endl; }

 private:
  void Form(std::istringstream& words) {
    GroupOptions options;
    int64_t timeout_ms = 0;
    words >> options.generation >> options.rank >> timeout_ms;
    options.operation_timeout = std::chrono::milliseconds(timeout_ms);
    for (std::string member; words >> member;) {
      const size_t equals = member.find('=');
      if (static_cast<int>(options.members.size()) != options.rank) {
        options.peers.push_back(static_cast<int>(options.members.size()));
      }
      options.members.push_back({member.substr(0, equals), member.substr(equals + 1)});
    }
    const Time begun = Now();
    auto group = endpoint_->Connect(options, After(std::chrono::seconds(10)));
    if (!group.ok()) {
      Answer("error " + OneLine(group.status()));
      return;
    }
    group_ = *std::move(group);
    Answer(fmt::format("formed {:.6f}", Seconds(Now() - begun)));
  }

  void Call(bool until_an_error, const std::string& name, size_t bytes) {
    Operation operation(*group_, name, bytes);
    Status status = operation.Call();
    if (!until_an_error) {
      Answer("once " + OneLine(status));
      return;
    }
    Answer("running");
    while (status.ok()) {
      status = operation.Call();
    }
    const int64_t ended = Now().time_since_epoch().count();
    group_->Abort(status);
    Answer(fmt::format("ended {} {}", ended, OneLine(status)));
  }

  const std::string name_;
  const std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<Communicator> group_;
};

int Run(int count, char** words) {
  if (count < 4) {
    std::cerr << "usage: member NAME BIND_HOST TRANSPORT [RDMA_DEVICE]\n";
    return 2;
  }
  metrics::Registry registry;
  auto endpoint = Endpoint::Create({.worker = words[1],
                                    .bind_host = words[2],
                                    .job = "job",
                                    .secret = "secret",
                                    .rdma_device = count > 4 ? words[4] : "",
                                    .transports = {words[3]},
                                    .metrics = &registry});
  if (!endpoint.ok()) {
    std::cerr << OneLine(endpoint.status()) << "\n";
    return 1;
  }
  Member::Answer("address " + (*endpoint)->address());
  Member member(words[1], *std::move(endpoint));
  for (std::string line; std::getline(std::cin, line);) {
    member.Obey(line);
  }
  return 0;
}

}  // namespace
}  // namespace heddle::comm

int main(int count, char** words) {
  return heddle::comm::Run(count, words);
}
