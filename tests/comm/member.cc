// One worker of a group, a process of its own: faults_test.py starts several, commands them on
// their standard input, and does to them what may befall them.
//
//   member NAME BIND_HOST TRANSPORT [RDMA_DEVICE]
//
// clang-format off
//   form GENERATION RANK TIMEOUT_MS NAME=ADDRESS…   forms a group           -> formed SECONDS
//   run OPERATION BYTES                             calls it until an error -> running, ended NANOSECONDS CODE MESSAGE
//   once OPERATION BYTES                            calls it once           -> once CODE MESSAGE
//   leave                                           drops the group         -> left DESCRIPTORS THREADS SEGMENTS KIB
// clang-format on
//
// SEGMENTS are mappings of shared memory, KIB its resident memory. The first line is `address
// ADDRESS`. Times are those of the machine's monotonic clock. A command that cannot be carried out
// answers `error MESSAGE`.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include <malloc.h>
#include <unistd.h>

#include "comm/communicator.h"
#include "metrics/registry.h"
#include "tests/comm/operations.h"

namespace heddle::comm {
namespace {

std::string OneLine(const Status& status) {
  std::string text = status.ok() ? "OK" : status.ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int64_t EntriesOf(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

int64_t MappedSegments() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:heddle") != std::string::npos ? 1 : 0;
  }
  return count;
}

int64_t ResidentKib() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
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
      ::malloc_trim(0);
      Answer(fmt::format("left {} {} {} {}", EntriesOf("/proc/self/fd"),
                         EntriesOf("/proc/self/task"), MappedSegments(), ResidentKib()));
    } else if ((command == "run" || command == "once") && group_ != nullptr) {
      std::string name;
      size_t bytes = 0;
      words >> name >> bytes;
      if (!words || !Calls::Known(name)) {
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
    auto group = endpoint_->Connect(options, After(std::chrono::minutes(1)));
    if (!group.ok()) {
      Answer("error " + OneLine(group.status()));
      return;
    }
    group_ = *std::move(group);
    Answer(fmt::format("formed {:.6f}", Seconds(Now() - begun)));
  }

  void Call(bool until_an_error, const std::string& name, size_t bytes) {
    Calls operation(*group_, name, bytes);
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
  const bool tls = std::string_view(words[3]) == "tls";
  metrics::Registry registry;
  auto endpoint =
      Endpoint::Create({.config = {.worker = words[1],
                                   .job = "job",
                                   .secret = "secret",
                                   .transports = {tls ? "tcp" : words[3]},
                                   .tls = tls},
                        .bind_host = words[2],
                        .transport_options = {{"verbs", {{"devices", count > 4 ? words[4] : ""}}}},
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
