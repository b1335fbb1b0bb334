/// \file
/// The gathers of one worker's step: the rows of compute copies that other workers keep and have
/// updated come to all that compute with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include <ATen/core/Tensor.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/graph/graph.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/exchange/group_calls.h"

namespace heddle::runtime {

/// A worker's part in the gather of a piece of a compute copy.
struct GatherPart {
  graph::ParameterId parameter = -1;
  at::Tensor whole = {};          ///< The piece, on the device, whose rows are gathered.
  graph::TensorType type = {};    ///< Its type.
  std::span<const int> group;     ///< Ranks by position; outlive the gather.
  std::span<const int64_t> rows;  ///< By position, how many rows each keeps, in their order.
  int position = 0;               ///< This worker's.
  uint64_t tag = 0;
};

/// Thread: one caller at a time.
class Gathers {
 public:
  /// Makes an uninitialised contiguous tensor in the host's memory.
  using MakeBuffer = std::function<at::Tensor(const graph::TensorType& type)>;

  /// `group` null: no gather is begun. `group` and `device` outlive this.
  Gathers(comm::Communicator* group, Device& device, MakeBuffer make_buffer)
      : group_(group),
        device_(device),
        make_buffer_(std::move(make_buffer)),
        calls_(group, /*urgent=*/false) {}
  Gathers(const Gathers&) = delete;
  Gathers& operator=(const Gathers&) = delete;

  /// Begins a gather once what is queued on the device has ended, and does not wait for it. Until
  /// Await nothing may read or write the piece. If the download of the own rows fails the group is
  /// aborted, because others wait for them. All members begin their gathers in one order.
  void Begin(const GatherPart& part);
  /// Waits until all gathers of the parameter have ended; compute that is queued from then on sees the
  /// whole pieces. Returns the time at which the last of them ended. Errors: the communicator's, and
  /// the device's that aborted it.
  Result<Time> Await(graph::ParameterId parameter);
  /// Waits until all gathers that were not awaited have ended, whose rows are dropped; the first error.
  Status Finish() {
    begun_.clear();
    return calls_.Finish();
  }
  /// After a failure: aborts the group, which is of no more use, and returns once no gather uses
  /// memory of this process.
  void Abandon(const Status& reason) {
    begun_.clear();
    calls_.Abandon(reason);
  }

 private:
  struct Begun {
    graph::ParameterId parameter = -1;
    at::Tensor whole;
    at::Tensor buffer;  ///< Where the rows come, in the host's memory; undefined: in `whole`.
  };

  comm::Communicator* const group_;
  Device& device_;
  const MakeBuffer make_buffer_;
  GroupCalls calls_;
  size_t next_ = 0;                ///< Number of the next call.
  std::map<size_t, Begun> begun_;  ///< By number of the call.
};

}  // namespace heddle::runtime
