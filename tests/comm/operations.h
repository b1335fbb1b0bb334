/// \file
/// Every collective, and messages from everyone to everyone, by name: what the tests of faults call
/// again and again.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "comm/communicator.h"

namespace heddle::comm {

inline std::vector<int64_t> SharesOf(int64_t elements, int members) {
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
class Calls {
 public:
  Calls(Communicator& group, const std::string& name, size_t bytes)
      : group_(group),
        floats_(static_cast<int64_t>(bytes) / 4),
        counts_(SharesOf(floats_, group.size())),
        whole_(static_cast<size_t>(floats_) * 4),
        other_(whole_.size()),
        call_(Named().at(name)) {}

  static std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& [name, call] : Named()) {
      names.push_back(name);
    }
    return names;
  }
  static bool Known(const std::string& name) { return Named().contains(name); }
  Status Call() { return (this->*call_)(); }

 private:
  using Member = Status (Calls::*)();
  static const std::map<std::string, Member>& Named() {
    static const std::map<std::string, Member> calls = {
        {"messages", &Calls::Messages},
        {"all_reduce", &Calls::AllReduce},
        {"reduce_scatter", &Calls::ReduceScatter},
        {"all_gather", &Calls::AllGather},
        {"all_to_all", &Calls::AllToAll},
        {"broadcast", &Calls::Broadcast},
        {"barrier", &Calls::Barrier},
        {"records", &Calls::Records},
        {"reduce_tree", &Calls::ReduceTree},
        {"reduce_scatter_tree", &Calls::ReduceScatterTree}};
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
    Status first;
    for (const Work& work : works) {
      if (first.ok()) {
        first = work.Wait();
      } else {  // The buffers may go with this object.
        work.Wait(Now()).IgnoreError("one has failed");
      }
    }
    return first;
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
  TreeContributions OneEach() const {
    TreeContributions contributions;
    for (int i = 0; i < group_.size(); ++i) {
      contributions.nodes.push_back({TreeNode{.level = 0, .index = i}});
    }
    return contributions;
  }
  Status ReduceTree() {
    const std::span<const std::byte> mine(other_);
    return group_.ReduceTree(OneEach(), std::span(&mine, 1), whole_, DType::kF32, {});
  }
  Status ReduceScatterTree() {
    const std::span<const std::byte> mine(other_);
    return group_.ReduceScatterTree(OneEach(), std::span(&mine, 1), Share(whole_), counts_,
                                    DType::kF32, {});
  }

  Communicator& group_;
  const int64_t floats_;
  const std::vector<int64_t> counts_;
  Bytes whole_;
  Bytes other_;
  int root_ = 0;
  const Member call_;
};

}  // namespace heddle::comm
