/// \file
/// The means of a test that runs in several guests of scripts/rdma-vm, in each the same tests in
/// the same order: to exchange texts beside the network, and to control the network itself.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/file.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {

inline std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline int Rank() {
  return std::stoi(Variable("HEDDLE_GUEST"));
}
inline int Size() {
  return std::stoi(Variable("HEDDLE_GUESTS"));
}

/// Publishes `text` to the other guests under `name`, in the folder that all share.
inline void Tell(const std::string& name, const std::string& text) {
  const std::string path = Variable("HEDDLE_VM") + "/" + name;
  std::ofstream(path + ".part") << text;
  ASSERT_EQ(::rename((path + ".part").c_str(), path.c_str()), 0);
}

/// Waits for the text that a guest published under `name`.
inline std::string Hear(const std::string& name) {
  const Time deadline = After(kAmple);
  while (Now() < deadline) {
    const auto text = ReadFile(Variable("HEDDLE_VM") + "/" + name, 4096);
    if (text.ok()) {
      return *text;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "nobody said " << name;
  return "";
}

/// Blocks until all guests have called it with `name`.
inline void Meet(const std::string& name) {
  Tell(name + "." + std::to_string(Rank()), "here");
  for (int other = 0; other < Size(); ++other) {
    Hear(name + "." + std::to_string(other));
  }
}

inline void Control(const std::string& command) {
  const std::string script = Variable("HEDDLE_CONTROL") + " " + command + " > /dev/null";
  EXPECT_EQ(::system(script.c_str()), 0) << script;
}

/// This guest's worker. `devices`: the RDMA devices that it may use; empty: all.
class Worker {
 public:
  explicit Worker(const std::string& devices = "") {
    EndpointOptions options = OptionsFor(Media::kVerbs, Rank(), &registry_);
    options.bind_host = Variable("HEDDLE_ADDRESS");
    options.transport_options["verbs"]["devices"] = devices;
    auto made = Endpoint::Create(options);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    endpoint_ = *std::move(made);
  }

  Endpoint& endpoint() { return *endpoint_; }
  metrics::Registry& registry() { return registry_; }

  /// Connects to the other guests' workers, with which it exchanges addresses under `name`.
  Result<std::unique_ptr<Communicator>> Connect(const std::string& name,
                                                int64_t generation,
                                                int size = Size()) {
    Tell(name + ".address." + std::to_string(Rank()), endpoint_->address());
    GroupOptions options;
    options.generation = generation;
    options.rank = Rank();
    for (int other = 0; other < size; ++other) {
      options.members.push_back(
          {Cluster::Name(other), Hear(name + ".address." + std::to_string(other))});
      if (other != Rank()) {
        options.peers.push_back(other);
      }
    }
    return endpoint_->Connect(options, After(kAmple));
  }

 private:
  metrics::Registry registry_;
  std::unique_ptr<Endpoint> endpoint_;
};

struct End {
  Status status;
  uint64_t operations = 0;
};

/// Runs collectives until one fails. `at` is called before each operation with its number.
inline End ReduceUntilFailure(
    Communicator& communicator,
    Duration deadline,
    const std::function<void(uint64_t)>& at = [](uint64_t) {}) {
  std::vector<float> buffer(100000, 1.0F);
  End end;
  while (end.status.ok()) {
    at(end.operations);
    end.status =
        communicator.AllReduce(RawOf(buffer), DType::kF32, ReduceOp::kMax,
                               {.group = {}, .tag = end.operations, .deadline = After(deadline)});
    if (end.status.ok()) {
      ++end.operations;
    }
  }
  return end;
}

}  // namespace heddle::comm
