/// \file
/// How one member of a group makes an exchange by a collective: which rows of its tensors go where
/// in the collective's buffers. On memory of the host, and without libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "comm/communicator.h"
#include "engine/graph/sharding/sharded_graph.h"

namespace heddle::runtime {

/// Fills `out` with the element that changes no result: -0.0 for a sum (+0.0 would change a sum of
/// -0.0), and the least value for max. Precondition: `op` is one of the two, and `out` has whole
/// elements.
void FillNeutral(std::span<std::byte> out, DType dtype, comm::ReduceOp op);

/// An exchange, but none that a member makes alone (slice, fill), as the member at `position` makes
/// it. Thread: any.
class ExchangeLayout {
 public:
  /// `to`: the extents of this member's part of Exchange::to; they may differ from the whole's
  /// along Exchange::dim alone.
  ExchangeLayout(const graph::Exchange& exchange, const Shape& to, DType dtype, int position);

  /// Bytes of this member's part of Exchange::from, and of Exchange::to.
  size_t sent_bytes() const { return BytesOf(sent()); }
  size_t received_bytes() const { return BytesOf(received()); }
  /// Bytes that Run needs beside the two parts; 0: none.
  size_t scratch_bytes() const;
  /// The offset in `scratch`, or if that is empty in `output`, at which the input may lie, so that
  /// Run need not copy it there; nullopt: it may not.
  std::optional<size_t> input_offset() const;

  /// Makes the exchange: `output` becomes this member's part of Exchange::to. `input` is its part
  /// of Exchange::from and does not change, but where it lies at input_offset(). Members that get
  /// one element get the same bits of it.
  /// Precondition: the three buffers have the bytes above. Errors: the communicator's.
  Status Run(comm::Communicator& group,
             const comm::CollectiveOptions& options,
             std::span<const std::byte> input,
             std::span<std::byte> output,
             std::span<std::byte> scratch) const;

 private:
  enum class Collective : uint8_t { kAllReduce, kReduceScatter, kAllGather };
  /// Memory of the rows [range.begin, range.end) of a tensor.
  template <typename Byte>
  struct Rows {
    std::span<Byte> bytes;
    graph::Range range;
  };

  const graph::Range& sent() const { return sent_[position_]; }
  const graph::Range& received() const { return received_[position_]; }
  int64_t Count(const graph::Range& range) const;
  size_t BytesOf(const graph::Range& range) const;
  size_t OwnedBefore() const;
  std::vector<int64_t> CountsOf(const std::vector<graph::Range>& ranges) const;
  size_t BytesOf(const std::vector<graph::Range>& ranges) const;
  /// Whether the parts one after the other are the whole tensor as it lies in memory.
  bool LieAsWhole(const std::vector<graph::Range>& parts) const;
  void Copy(const Rows<const std::byte>& from, const Rows<std::byte>& to) const;
  void CopyAddends(std::span<const std::byte> input, const Rows<std::byte>& to) const;

  bool ReducesInOutput() const { return received() == whole_; }
  bool ScattersInput() const { return LieAsWhole(received_) && sent() == whole_; }
  bool GathersInOutput() const { return LieAsWhole(owned_) && received() == whole_; }
  Status AllReduce(comm::Communicator& group,
                   const comm::CollectiveOptions& options,
                   std::span<const std::byte> input,
                   std::span<std::byte> output,
                   std::span<std::byte> scratch) const;
  Status ReduceScatter(comm::Communicator& group,
                       const comm::CollectiveOptions& options,
                       std::span<const std::byte> input,
                       std::span<std::byte> output,
                       std::span<std::byte> scratch) const;
  Status AllGather(comm::Communicator& group,
                   const comm::CollectiveOptions& options,
                   std::span<const std::byte> input,
                   std::span<std::byte> output,
                   std::span<std::byte> scratch) const;

  std::vector<graph::Range> sent_;
  std::vector<graph::Range> received_;
  std::vector<graph::Range> owned_;  ///< For kAllGather: what each member sends of what it has.
  size_t position_ = 0;
  DType dtype_ = DType::kF32;
  comm::ReduceOp op_ = comm::ReduceOp::kSum;
  Collective collective_ = Collective::kAllReduce;
  graph::Range whole_;     ///< All rows.
  int64_t outer_ = 1;      ///< Elements before the dimension, each with all of a part's rows.
  int64_t row_bytes_ = 0;  ///< Bytes behind the dimension.
};

}  // namespace heddle::runtime
