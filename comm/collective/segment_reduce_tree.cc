// The reproducible reduction of members that share memory: staged, but a member may bring several
// values, and they are added in the tree's order. A member's stage has an area for each value that
// leaves a member, as many as the member with the most of them needs.
#include <algorithm>
#include <array>
#include <vector>

#include "comm/collective/collective.h"
#include "comm/collective/fold.h"
#include "comm/collective/fold_plan.h"
#include "comm/collective/segment_collective.h"
#include "comm/collective/segment_staged.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/group.h"
#include "comm/group/scratch.h"
#include "comm/group/segment_call.h"
#include "comm/message/call_signature.h"
#include "comm/transport/streaming_copy.h"

namespace heddle::comm {

namespace {

/// Smaller results are reduced by messages: a few hops cost less than the steps of a block.
constexpr size_t kLeastBytes = size_t{64} << 10;
/// The least bytes of a member's area of a block; with less the steps cost more than the copies.
constexpr int64_t kLeastAreaBytes = int64_t{16} << 10;

/// The values that members share with others.
struct TravellingValues {
  std::vector<int> area;   ///< By leaf: its area in its member's stage; -1: it is not shared.
  std::vector<int> count;  ///< Number of shared values by member.
  int areas = 1;           ///< The largest number of shared values of a member.
};

TravellingValues TravellingOf(const FoldPlan& plan, int members) {
  TravellingValues travelling;
  travelling.count.resize(static_cast<size_t>(members));
  for (size_t leaf = 0; leaf < plan.leaves.size(); ++leaf) {
    int& count = travelling.count[static_cast<size_t>(plan.leaves[leaf].member)];
    travelling.area.push_back(plan.travels[leaf] ? count++ : -1);
    travelling.areas = std::max(travelling.areas, count);
  }
  return travelling;
}

class SegmentTreeReduction : public StagedReduction {
 public:
  SegmentTreeReduction(SegmentCall& call,
                       const FoldPlan& plan,
                       std::span<const std::span<const std::byte>> mine,
                       std::span<std::byte> output,
                       DType dtype,
                       const TravellingValues& travelling,
                       std::span<std::byte> scratch)
      : StagedReduction(call, output, travelling.areas),
        own_(call.position()),
        plan_(plan),
        mine_(mine),
        dtype_(dtype),
        area_(travelling.area),
        scratch_(scratch),
        values_(plan.leaves.size()) {
    for (const Fold& fold : plan.at_member) {
      if (IsMine(static_cast<size_t>(fold.left))) {
        own_folds_.push_back(fold);
      }
    }
  }

 private:
  bool IsMine(size_t leaf) const { return plan_.leaves[leaf].member == own_; }

  void Bring(int64_t offset, size_t bytes, std::byte* stage) override {
    AddOwn(offset, bytes);
    for (size_t leaf = 0; leaf < values_.size(); ++leaf) {
      if (IsMine(leaf) && area_[leaf] >= 0) {
        CopyToStage(stage + area_[leaf] * area_bytes(), values_[leaf], bytes);
      }
    }
  }

  const std::byte* Sum(int64_t offset,
                       size_t bytes,
                       std::span<const std::byte* const> stages) override {
    AddOwn(offset, bytes);
    for (size_t leaf = 0; leaf < values_.size(); ++leaf) {
      if (!IsMine(leaf) && area_[leaf] >= 0) {
        values_[leaf] =
            stages[static_cast<size_t>(plan_.leaves[leaf].member)] + area_[leaf] * area_bytes();
      }
    }
    for (const Fold& fold : plan_.at_owner) {
      Add(fold, bytes);
    }
    return values_.front();
  }

  /// This member's values of a tile, after the additions that only this member makes.
  void AddOwn(int64_t offset, size_t bytes) {
    for (size_t leaf = 0; leaf < values_.size(); ++leaf) {
      if (IsMine(leaf)) {
        values_[leaf] = mine_[static_cast<size_t>(plan_.leaves[leaf].index)].data() + offset;
      }
    }
    for (const Fold& fold : own_folds_) {
      Add(fold, bytes);
    }
  }

  void Add(const Fold& fold, size_t bytes) {
    const auto left = static_cast<size_t>(fold.left);
    std::byte* const sum = scratch_.data() + static_cast<int64_t>(left) * kTileBytes;
    const std::array<const std::byte*, 2> inputs{values_[left],
                                                 values_[static_cast<size_t>(fold.right)]};
    FoldAll(inputs, std::span(&sum, 1), bytes, dtype_, ReduceOp::kSum);
    values_[left] = sum;
  }

  const int own_;
  const FoldPlan& plan_;
  const std::span<const std::span<const std::byte>> mine_;
  const DType dtype_;
  const std::vector<int>& area_;
  const std::span<std::byte> scratch_;    ///< One tile per leaf.
  std::vector<const std::byte*> values_;  ///< Values of the current tile, by leaf.
  std::vector<Fold> own_folds_;           ///< Folds of values that only this member holds.
};

}  // namespace

Result<bool> SegmentReduceTree(Group& group,
                               const FoldPlan& plan,
                               std::span<const std::span<const std::byte>> mine,
                               std::span<std::byte> output,
                               DType dtype,
                               uint64_t counts,
                               const CollectiveOptions& options,
                               const CallNumber& number) {
  if (output.size() < kLeastBytes) {
    return false;
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.segments().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  const int members = shared->size();
  const TravellingValues travelling = TravellingOf(plan, members);
  if (StagedReduction::AreaBytes(shared->layout(), members, travelling.areas) < kLeastAreaBytes) {
    return false;
  }
  SegmentCall call(group, *shared, options, number);
  const auto hash = static_cast<int64_t>(counts);
  HEDDLE_ASSIGN_OR_RETURN(
      const bool entered,
      call.EnterSmall(SegmentShapeOf(CallKind::kReduceTree, dtype, 0, std::span(&hash, 1)), {}));
  if (!entered) {
    return false;
  }
  // The analyzer does not follow a unique_ptr that is moved.
  ScratchPool::Piece scratch =  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
      group.scratch().Take(plan.leaves.size() * static_cast<size_t>(kTileBytes));
  SegmentTreeReduction work(call, plan, mine, output, dtype, travelling,
                            {scratch.memory.get(), scratch.room});
  const Status status = work.Run();
  group.scratch().Return(std::move(scratch));
  HEDDLE_RETURN_IF_ERROR(status);
  // A member reads the others' values of its slice, and the slices that they added up.
  const Slices slices(static_cast<int64_t>(output.size()), members);
  const int own = call.position();
  for (int member = 0; member < members; ++member) {
    const int64_t to = travelling.count[static_cast<size_t>(own)] * slices.size(member);
    const int64_t from = travelling.count[static_cast<size_t>(member)] * slices.size(own);
    call.Count(member, to + slices.size(own), from + slices.size(member));
  }
  return true;
}

}  // namespace heddle::comm
