/// \file
/// A group of workers as processes of their own, for tests of signals to one of them and of memory
/// that is shared only by passing descriptors.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/unique_fd.h"
#include "comm/communicator.h"
#include "metrics/registry.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {

/// The workers' processes, forked before this process has threads of its own. Each child connects
/// to all others and runs the body, whose result is its exit code.
class Processes {
 public:
  /// `report`: a pipe to this process, in which Read returns what the child wrote.
  using Body = std::function<int(int rank, Endpoint& endpoint, Communicator& group, int report)>;

  Processes(int size, Media media, const Body& body) {
    for (int rank = 0; rank < size; ++rank) {
      int in[2] = {};
      int out[2] = {};
      EXPECT_EQ(::pipe(in), 0);
      EXPECT_EQ(::pipe(out), 0);
      Child child;
      child.pid = ::fork();
      if (child.pid == 0) {
        ::close(in[1]);
        ::close(out[0]);
        child_in_ = in[0];
        ::_exit(RunChild(rank, size, media, body, in[0], out[1]));
      }
      ::close(in[0]);
      ::close(out[1]);
      child.in.Reset(in[1]);
      child.out.Reset(out[0]);
      children_.push_back(std::move(child));
    }
    std::string addresses;
    for (const Child& child : children_) {
      std::string address(kAddressBytes, '\0');
      EXPECT_TRUE(ReadWhole(child.out.get(), address.data(), kAddressBytes));
      addresses += address;
    }
    for (const Child& child : children_) {
      EXPECT_EQ(::write(child.in.get(), addresses.data(), addresses.size()),
                static_cast<ssize_t>(addresses.size()));
    }
  }
  ~Processes() {
    for (const Child& child : children_) {
      if (child.pid > 0) {
        ::kill(child.pid, SIGKILL);
        ::waitpid(child.pid, nullptr, 0);
      }
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void Signal(int rank, int signal) {
    EXPECT_EQ(::kill(children_[static_cast<size_t>(rank)].pid, signal), 0);
  }
  void WaitUntilStopped(int rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(children_[static_cast<size_t>(rank)].pid, &status, WUNTRACED),
              children_[static_cast<size_t>(rank)].pid);
    EXPECT_TRUE(WIFSTOPPED(status)) << "rank " << rank << " ended: " << status;
  }
  template <typename T>
  T Read(int rank) {
    T value{};
    EXPECT_TRUE(ReadWhole(children_[static_cast<size_t>(rank)].out.get(), &value, sizeof(value)))
        << "rank " << rank << " ended early";
    return value;
  }
  template <typename T>
  static void Write(int report, const T& value) {
    [[maybe_unused]] const ssize_t written = ::write(report, &value, sizeof(value));
  }
  /// Called in a child: blocks until Dismiss, so that others can read why it aborted.
  static void StayUntilDismissed() {
    char end = 0;
    while (::read(child_in_, &end, 1) > 0) {
    }
  }
  void Dismiss() {
    for (Child& child : children_) {
      child.in.Reset();
    }
  }
  /// Waits for a child to end. Returns its exit code; -1: a signal ended it.
  int Wait(int rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(children_[static_cast<size_t>(rank)].pid, &status, 0),
              children_[static_cast<size_t>(rank)].pid);
    children_[static_cast<size_t>(rank)].pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  static constexpr size_t kAddressBytes = 256;
  struct Child {
    pid_t pid = -1;
    UniqueFd in;
    UniqueFd out;
  };

  static bool ReadWhole(int fd, void* data, size_t size) {
    for (size_t have = 0; have < size;) {
      const ssize_t got = ::read(fd, static_cast<char*>(data) + have, size - have);
      if (got <= 0) {
        return false;
      }
      have += static_cast<size_t>(got);
    }
    return true;
  }

  static int RunChild(int rank, int size, Media media, const Body& body, int in, int out) {
    metrics::Registry registry;
    auto endpoint = Endpoint::Create(OptionsFor(media, rank, &registry));
    if (!endpoint.ok()) {
      return 100;
    }
    std::string address((*endpoint)->address());
    address.resize(kAddressBytes);
    if (::write(out, address.data(), kAddressBytes) != static_cast<ssize_t>(kAddressBytes)) {
      return 101;
    }
    GroupOptions group;
    group.generation = 1;
    group.rank = rank;
    for (int other = 0; other < size; ++other) {
      if (!ReadWhole(in, address.data(), kAddressBytes)) {
        return 102;
      }
      group.members.push_back({Cluster::Name(other), address.c_str()});
      if (other != rank) {
        group.peers.push_back(other);
      }
    }
    auto communicator = (*endpoint)->Connect(group, After(kAmple));
    return communicator.ok() ? body(rank, **endpoint, **communicator, out) : 103;
  }

  static inline int child_in_ = -1;
  std::vector<Child> children_;
};

}  // namespace heddle::comm
