// The reproducible reductions. The tensor is cut into slices, one an owner; every member sends its
// partial sums of a slice to the slice's owner, who adds them in the order of
// base/tensor/reduction_tree.h and, unless each member is to have its slice alone, sends the result
// to all. Slices go in pieces, a few in flight, so that folding overlaps both journeys. A sum whose
// operands one member holds alone is added there before it is sent: the same addition of the same
// bits.
#include <algorithm>
#include <cstring>

#include "comm/collective/collective.h"
#include "comm/collective/fold_plan.h"
#include "comm/collective/reduce.h"
#include "comm/cost/cost.h"

namespace heddle::comm {

namespace {

constexpr int64_t kWindow = 3;  ///< Pieces in flight.

/// Who adds what of a tensor, and who gets it.
struct Division {
  Segments slices;
  std::vector<int> owners;  ///< Position by slice; at most one slice each.
  bool scatter = false;     ///< A slice's sum is its owner's alone, whose output it is.
};

class TreeReduction {
 public:
  TreeReduction(Collective& call,
                const FoldPlan& plan,
                std::span<const std::span<const std::byte>> mine,
                std::span<std::byte> output,
                Division division,
                DType dtype)
      : call_(call),
        plan_(plan),
        mine_(mine),
        output_(output),
        dtype_(dtype),
        element_(SizeOf(dtype)),
        slices_(std::move(division.slices)),
        owners_(std::move(division.owners)),
        scatter_(division.scatter) {
    // Equal pieces, so that the last is not a sliver.
    int64_t longest = 0;
    for (int i = 0; i < static_cast<int>(owners_.size()); ++i) {
      longest = std::max(longest, slices_.count(i) * element_);
    }
    pieces_ = std::max<int64_t>(1, (longest + kPieceBytes - 1) / kPieceBytes);
    slots_.resize(static_cast<size_t>(std::min(kWindow, pieces_)));
  }

  Status Run() {
    const auto window = static_cast<int64_t>(slots_.size());
    for (int64_t piece = 0; piece < window; ++piece) {
      HEDDLE_RETURN_IF_ERROR(Start(piece));
    }
    for (int64_t piece = 0; piece < pieces_; ++piece) {
      HEDDLE_RETURN_IF_ERROR(Finish(piece));
      if (piece + window < pieces_) {
        HEDDLE_RETURN_IF_ERROR(Start(piece + window));
      }
    }
    return call_.WaitAll();
  }

 private:
  /// A piece in flight.
  struct PieceBuffers {
    std::vector<Bytes>
        values;  ///< By leaf: received, or folded or copied here; empty: still `mine`.
    std::vector<Bytes> folded;  ///< Own partial sums under way to other owners.
    std::vector<Collective::Pending> contributions;
    std::vector<Collective::Pending> results;
    std::vector<Collective::Pending> sent;
  };
  struct Range {
    int64_t offset = 0;  ///< Bytes.
    int64_t size = 0;
  };

  Range RangeOf(size_t owner, int64_t piece) const {
    const int i = static_cast<int>(owner);
    const int64_t begin = EvenBegin(slices_.count(i), pieces_, piece);
    const int64_t end = EvenBegin(slices_.count(i), pieces_, piece + 1);
    return {.offset = (slices_.begin(i) + begin) * element_, .size = (end - begin) * element_};
  }
  PieceBuffers& SlotOf(int64_t piece) { return slots_[static_cast<size_t>(piece) % slots_.size()]; }
  std::span<const std::byte> Mine(size_t leaf, Range range) const {
    return Slice(mine_[static_cast<size_t>(plan_.leaves[leaf].index)], range.offset, range.size);
  }
  bool IsMine(size_t leaf) const { return plan_.leaves[leaf].member == call_.position(); }

  /// Own values after own folds; `values` has an entry for each leaf, empty where `mine` is
  /// unchanged.
  void FoldMine(std::vector<Bytes>& values, Range range) const {
    values.assign(plan_.leaves.size(), {});
    for (const Fold& fold : plan_.at_member) {
      if (IsMine(static_cast<size_t>(fold.left))) {
        FoldPair(values, fold, range);
      }
    }
  }

  void FoldPair(std::vector<Bytes>& values, const Fold& fold, Range range) const {
    const auto left = static_cast<size_t>(fold.left);
    const auto right = static_cast<size_t>(fold.right);
    if (values[left].empty()) {
      const auto source = Mine(left, range);
      values[left].assign(source.begin(), source.end());
    }
    FoldInto(values[left], values[right].empty() ? Mine(right, range) : values[right], dtype_,
             ReduceOp::kSum);
  }

  Status Start(int64_t piece) {
    PieceBuffers& slot = SlotOf(piece);
    for (const auto& pending : slot.sent) {  // They went before the slot's last results came.
      HEDDLE_RETURN_IF_ERROR(call_.Wait(pending));
    }
    slot = PieceBuffers{};
    for (size_t i = 0; i < owners_.size(); ++i) {
      const Range range = RangeOf(i, piece);
      if (range.size == 0) {
        continue;
      }
      if (owners_[i] == call_.position()) {
        Collect(slot, range, piece);
      } else {
        Contribute(slot, owners_[i], range, piece);
        if (!scatter_) {
          slot.results.push_back(call_.Recv(owners_[i], Phase::kTreeResult, piece, 0,
                                            Slice(output_, range.offset, range.size)));
        }
      }
    }
    return Status::Ok();
  }

  void Collect(PieceBuffers& slot, Range range, int64_t piece) {
    FoldMine(slot.values, range);
    for (size_t leaf = 0; leaf < plan_.leaves.size(); ++leaf) {
      if (!IsMine(leaf) && plan_.travels[leaf]) {
        slot.values[leaf].resize(static_cast<size_t>(range.size));
        slot.contributions.push_back(call_.Recv(plan_.leaves[leaf].member, Phase::kTreeContribution,
                                                piece, static_cast<int64_t>(leaf),
                                                slot.values[leaf]));
      }
    }
  }

  void Contribute(PieceBuffers& slot, int owner, Range range, int64_t piece) {
    std::vector<Bytes> values;
    FoldMine(values, range);
    for (size_t leaf = 0; leaf < plan_.leaves.size(); ++leaf) {
      if (!IsMine(leaf) || !plan_.travels[leaf]) {
        continue;
      }
      std::span<const std::byte> value = Mine(leaf, range);
      if (!values[leaf].empty()) {
        slot.folded.push_back(std::move(values[leaf]));
        value = slot.folded.back();
      }
      slot.sent.push_back(
          call_.Send(owner, Phase::kTreeContribution, piece, static_cast<int64_t>(leaf), value));
    }
  }

  Status Finish(int64_t piece) {
    PieceBuffers& slot = SlotOf(piece);
    for (size_t i = 0; i < owners_.size(); ++i) {
      const Range range = RangeOf(i, piece);
      if (owners_[i] != call_.position() || range.size == 0) {
        continue;
      }
      for (const auto& pending : slot.contributions) {
        HEDDLE_RETURN_IF_ERROR(call_.Wait(pending));
      }
      for (const Fold& fold : plan_.at_owner) {
        FoldPair(slot.values, fold, range);
      }
      const int64_t begin = scatter_ ? slices_.begin(static_cast<int>(i)) * element_ : 0;
      const auto result = Slice(output_, range.offset - begin, range.size);
      const std::span<const std::byte> sum =
          slot.values[0].empty() ? Mine(0, range) : slot.values[0];
      std::memmove(result.data(), sum.data(), sum.size());
      for (int member = 0; member < call_.size() && !scatter_; ++member) {
        if (member != call_.position()) {
          slot.sent.push_back(call_.Send(member, Phase::kTreeResult, piece, 0, result));
        }
      }
    }
    for (const auto& pending : slot.results) {
      HEDDLE_RETURN_IF_ERROR(call_.Wait(pending));
    }
    return Status::Ok();
  }

  Collective& call_;
  const FoldPlan& plan_;
  const std::span<const std::span<const std::byte>> mine_;
  const std::span<std::byte> output_;
  const DType dtype_;
  const int64_t element_;
  const Segments slices_;
  const std::vector<int> owners_;
  const bool scatter_;
  int64_t pieces_ = 1;
  std::vector<PieceBuffers> slots_;
};

Status RunReduction(Collective& call, TreeReduction reduction) {
  const Status status = reduction.Run();
  if (!status.ok()) {
    call.CancelAll();  // Before the buffers of the reduction go.
  }
  return status;
}

}  // namespace

Status ReduceByTree(Collective& call,
                    const FoldPlan& plan,
                    std::span<const std::span<const std::byte>> mine,
                    std::span<std::byte> output,
                    DType dtype) {
  const auto bytes = static_cast<int64_t>(output.size());
  const int owners = ReduceTreeOwners(call.size(), bytes);
  Division division{.slices = Segments::Even(bytes / SizeOf(dtype), owners), .owners = {}};
  for (int i = 0; i < owners; ++i) {
    // Small tensors are spread over the members by their tags.
    division.owners.push_back(static_cast<int>((call.tag() + static_cast<uint64_t>(i)) %
                                               static_cast<uint64_t>(call.size())));
  }
  return RunReduction(call, TreeReduction(call, plan, mine, output, std::move(division), dtype));
}

Status ReduceScatterByTree(Collective& call,
                           const FoldPlan& plan,
                           std::span<const std::span<const std::byte>> mine,
                           std::span<std::byte> output,
                           const Segments& segments,
                           DType dtype) {
  Division division{.slices = segments, .owners = {}, .scatter = true};
  for (int i = 0; i < call.size(); ++i) {
    division.owners.push_back(i);
  }
  return RunReduction(call, TreeReduction(call, plan, mine, output, std::move(division), dtype));
}

}  // namespace heddle::comm
