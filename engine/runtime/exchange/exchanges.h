/// \file
/// The exchanges of one worker's step with the other members of its stage's group: between values
/// on its device and the communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <ATen/core/Tensor.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/graph/sharding/sharded_graph.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/exchange/exchange_layout.h"
#include "engine/runtime/exchange/group_calls.h"

namespace heddle::runtime {

/// A member's part in an exchange.
struct ExchangePart {
  const graph::Exchange* exchange = nullptr;  ///< Outlives the exchange.
  std::span<const int> group = {};            ///< Ranks by position; outlive the exchange.
  int position = 0;                           ///< This worker's.
  uint64_t tag = 0;
  at::Tensor value = {};      ///< What this member has of Exchange::from; undefined: nothing.
  graph::TensorType to = {};  ///< What it gets of Exchange::to.
};

/// Makes a slice or a fill, which sends nothing, and returns its result on the device.
at::Tensor MakeAlone(Device& device, const ExchangePart& part);

/// Thread: one caller at a time.
class Exchanges {
 public:
  /// Makes an uninitialised contiguous tensor in the host's memory.
  using MakeBuffer = std::function<at::Tensor(const graph::TensorType& type)>;

  /// `group` null: no exchange is begun. `group` and `device` outlive this.
  Exchanges(comm::Communicator* group, Device& device, MakeBuffer make_buffer)
      : group_(group),
        device_(device),
        make_buffer_(std::move(make_buffer)),
        calls_(group, /*urgent=*/true) {}
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;

  /// Begins an exchange that is not a slice or a fill, as number `key` of the step, once its value
  /// is computed and downloaded, and waits for neither. The value is kept until the exchange has
  /// ended. Then the returned tensor, in the host's memory, is what this member gets; undefined: it
  /// gets nothing. If the download fails the group is aborted, because others wait for it. All
  /// members begin their exchanges in one order.
  at::Tensor Begin(size_t key, const ExchangePart& part);
  /// Waits until exchange `key` has ended; the time at which it did. Precondition: begun, and not
  /// awaited before. Errors: the communicator's, and the device's that aborted it.
  Result<Time> Await(size_t key) { return calls_.Await(key); }
  /// Waits until all exchanges that were not awaited have ended; the first error.
  Status Finish() { return calls_.Finish(); }
  /// After a failure: aborts the group, which is of no more use, and returns once no exchange uses
  /// memory of this process.
  void Abandon(const Status& reason) { calls_.Abandon(reason); }

 private:
  Copied Fetch(const ExchangePart& part, const ExchangeLayout& layout, const at::Tensor& buffer);

  comm::Communicator* const group_;
  Device& device_;
  const MakeBuffer make_buffer_;
  GroupCalls calls_;
};

}  // namespace heddle::runtime
