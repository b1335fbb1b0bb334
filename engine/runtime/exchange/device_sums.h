/// \file
/// Exact sums of gradients that the members' devices make in memory which they read of each other
/// (engine/runtime/device/peer_memory.h), without the host's memory between. Each member puts its
/// contributions where the others read them, adds its slice of all of them in tree order, and copies
/// the other slices from those who added them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/program/memory.h"
#include "engine/program/program.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/exchange/peer_sum.h"

namespace heddle::runtime {

/// A worker's part of the sums of a Program. Thread: one caller at a time.
class DeviceSums {
 public:
  /// `program`, `group` and `device` outlive this; `master`: the type of gradients; `most_bytes`: what
  /// the memory of all groups takes at most. Sums that are larger than its half are made piece by
  /// piece.
  DeviceSums(const program::Program& program,
             DType master,
             comm::Communicator* group,
             Device& device,
             size_t most_bytes = program::kMostSumBytes);
  DeviceSums(const DeviceSums&) = delete;
  DeviceSums& operator=(const DeviceSums&) = delete;

  /// Agrees with the members of each group that sums gradients whether their devices do it: they do
  /// if all members compute on devices of one host that read each other's memory, which is allocated
  /// and tried here. Every member calls it once. Errors: the communicator's.
  Status Agree();
  /// True if the sum of `instruction` is made on the devices, which all members know alike. False
  /// before Agree.
  bool Makes(const program::Instruction& instruction) const;
  /// Makes the sum of `parts`, all of one collective. The outputs are complete on the device once
  /// newest() has ended; the device keeps what it uses until then. `computed`: behind all compute that
  /// makes the values, or used the outputs' memory before. Waits for the device and for the other
  /// members. Errors: the device's, after which the group is aborted, and the communicator's.
  Status Make(std::vector<SumPart> parts, const Mark& computed);
  /// The end of the newest sum.
  const Mark& newest() const { return newest_; }

 private:
  /// What the sums of a group need.
  struct Need {
    uint64_t tag = 0;  ///< Of the first one.
    size_t half = 0;
  };
  struct Members {
    std::shared_ptr<PeerArenas> arenas;
    size_t turn = 0;  ///< Which half the next piece uses.
  };
  using Ranks = std::vector<int>;

  std::vector<std::pair<Ranks, Need>> Needs() const;
  int64_t ElementsOf(const program::Instruction& instruction) const;
  Status AgreeIn(const Ranks& ranks, const Need& need);
  bool Open(const std::vector<Bytes>& handles, PeerArenas& arenas);
  Status Meet(const Mark& mark, const program::Instruction& instruction);

  const program::Program& program_;
  const DType master_;
  comm::Communicator* const group_;
  Device& device_;
  const size_t most_bytes_;
  std::map<Ranks, Members> members_;  ///< Of the groups whose devices make their sums.
  Mark newest_;
};

}  // namespace heddle::runtime
