// The reproducible reduction of members that share memory: staged, as in segment_all_reduce.cc, but
// a member may bring several values, and they are added in the tree's order.
//
// A member's stage has an area for each value that leaves a member, as many as the member with the
// most of them needs. Everyone copies in what the others are to add, adds up its own slice out of
// the others' stages and its own values, leaves the result in its buffer and in its first area,
// where no value of that slice was, and copies out what the others added up. Why a stage may be
// filled while another is read is told there, too.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "comm/collective/collective.h"
#include "comm/collective/fold.h"
#include "comm/collective/fold_plan.h"
#include "comm/collective/segment_collective.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/group.h"
#include "comm/group/scratch.h"
#include "comm/group/segment.h"
#include "comm/message/call_signature.h"

namespace heddle::comm {

namespace {

/// Smaller results travel by messages: a few hops cost less than the steps of a block.
constexpr size_t kLeastBytes = size_t{64} << 10;
/// Of a slice, at a time: what is added stays in the cache.
constexpr int64_t kTileBytes = int64_t{16} << 10;
/// A member's area of a block is no smaller: else the steps cost more than the copies.
constexpr int64_t kLeastAreaBytes = int64_t{32} << 10;

/// By leaf: in which area of its member's stage its value travels; -1: it stays.
std::vector<int> AreasOf(const FoldPlan& plan, int members) {
  std::vector<int> used(static_cast<size_t>(members));
  std::vector<int> areas;
  for (size_t leaf = 0; leaf < plan.leaves.size(); ++leaf) {
    areas.push_back(plan.travels[leaf] ? used[static_cast<size_t>(plan.leaves[leaf].member)]++
                                       : -1);
  }
  return areas;
}

class SegmentTreeReduction {
 public:
  SegmentTreeReduction(SegmentCall& call,
                       const FoldPlan& plan,
                       std::span<const std::span<const std::byte>> mine,
                       std::span<std::byte> output,
                       DType dtype,
                       std::vector<int> areas,
                       int64_t area_bytes,
                       std::span<std::byte> scratch)
      : call_(call),
        plan_(plan),
        mine_(mine),
        output_(output),
        dtype_(dtype),
        areas_(std::move(areas)),
        area_bytes_(area_bytes),
        scratch_(scratch),
        values_(plan.leaves.size()) {
    const auto total = static_cast<int64_t>(output.size());
    // Blocks of equal size, so that none is left over small.
    blocks_ = (total + area_bytes - 1) / area_bytes;
    block_bytes_ = ((total + blocks_ - 1) / blocks_ + kLine - 1) / kLine * kLine;
    chunk_bytes_ = Slices(block_bytes_, call.size()).each;
    for (const Fold& fold : plan.at_member) {
      if (IsMine(static_cast<size_t>(fold.left))) {
        own_folds_.push_back(fold);
      }
    }
    folds_ = own_folds_;
    folds_.insert(folds_.end(), plan.at_owner.begin(), plan.at_owner.end());
  }

  Status Run() {
    CopyIn(0);
    call_.Arrive();
    for (int64_t block = 0; block < blocks_; ++block) {
      HEDDLE_RETURN_IF_ERROR(call_.WaitAll());  // Everyone's values of this block.
      FoldBlock(block);
      call_.Arrive();
      const bool more = block + 1 < blocks_;
      if (more) {
        CopyIn(block + 1);
        call_.Arrive();
      }
      HEDDLE_RETURN_IF_ERROR(call_.WaitAll(more ? 1 : 0));  // Everyone's results.
      CopyOut(block);
    }
    return Status::Ok();
  }

 private:
  bool IsMine(size_t leaf) const { return plan_.leaves[leaf].member == call_.position(); }
  Slices SlicesOf(int64_t block) const {
    const auto total = static_cast<int64_t>(output_.size());
    return {std::min(block_bytes_, total - block * block_bytes_), call_.size()};
  }
  const std::byte* Mine(size_t leaf, int64_t offset) const {
    return mine_[static_cast<size_t>(plan_.leaves[leaf].index)].data() + offset;
  }
  /// Where the value of a leaf, or (area 0) a result, of a member's slice lies in a stage.
  std::byte* Area(int member, int area, int64_t block, int slice) const {
    return call_.Stage(member, block) + area * area_bytes_ + slice * chunk_bytes_;
  }
  std::byte* Tile(size_t leaf) const {
    return scratch_.data() + static_cast<int64_t>(leaf) * kTileBytes;
  }

  /// values_[left] += values_[right] for a tile; the sum lies in `to`.
  void Add(const Fold& fold, size_t bytes, std::span<std::byte* const> to) {
    auto& left = values_[static_cast<size_t>(fold.left)];
    const std::array<const std::byte*, 2> inputs{left, values_[static_cast<size_t>(fold.right)]};
    FoldAll(inputs, to, bytes, dtype_, ReduceOp::kSum);
    left = to.front();
  }

  void CopyIn(int64_t block) {
    const Slices slices = SlicesOf(block);
    for (int step = 1; step < call_.size(); ++step) {
      const int member = (call_.position() + step) % call_.size();
      for (int64_t at = 0; at < slices.size(member); at += kTileBytes) {
        const auto bytes = static_cast<size_t>(std::min(kTileBytes, slices.size(member) - at));
        const int64_t offset = block * block_bytes_ + slices.begin(member) + at;
        for (size_t leaf = 0; leaf < values_.size(); ++leaf) {
          values_[leaf] = IsMine(leaf) ? Mine(leaf, offset) : nullptr;
        }
        for (const Fold& fold : own_folds_) {
          std::byte* const tile = Tile(static_cast<size_t>(fold.left));
          Add(fold, bytes, std::span(&tile, 1));
        }
        for (size_t leaf = 0; leaf < values_.size(); ++leaf) {
          if (IsMine(leaf) && areas_[leaf] >= 0) {
            std::memcpy(Area(call_.position(), areas_[leaf], block, member) + at, values_[leaf],
                        bytes);
          }
        }
      }
    }
  }

  void FoldBlock(int64_t block) {
    const Slices slices = SlicesOf(block);
    const int own = call_.position();
    for (int64_t at = 0; at < slices.size(own); at += kTileBytes) {
      const auto bytes = static_cast<size_t>(std::min(kTileBytes, slices.size(own) - at));
      const int64_t offset = block * block_bytes_ + slices.begin(own) + at;
      for (size_t leaf = 0; leaf < values_.size(); ++leaf) {
        values_[leaf] = IsMine(leaf) ? Mine(leaf, offset)
                        : areas_[leaf] >= 0
                            ? Area(plan_.leaves[leaf].member, areas_[leaf], block, own) + at
                            : nullptr;
      }
      const std::array<std::byte*, 2> results{output_.data() + offset,
                                              Area(own, 0, block, own) + at};
      for (const Fold& fold : folds_) {
        std::byte* const tile = Tile(static_cast<size_t>(fold.left));
        // The tree's last addition is the whole sum.
        const bool last = &fold == &folds_.back();
        Add(fold, bytes, last ? std::span<std::byte* const>(results) : std::span(&tile, 1));
      }
      if (folds_.empty()) {
        for (std::byte* const result : results) {
          std::memmove(result, values_.front(), bytes);
        }
      }
    }
  }

  void CopyOut(int64_t block) {
    const Slices slices = SlicesOf(block);
    for (int step = 1; step < call_.size(); ++step) {
      const int member = (call_.position() + step) % call_.size();
      std::memcpy(output_.data() + block * block_bytes_ + slices.begin(member),
                  Area(member, 0, block, member), static_cast<size_t>(slices.size(member)));
    }
  }

  SegmentCall& call_;
  const FoldPlan& plan_;
  const std::span<const std::span<const std::byte>> mine_;
  const std::span<std::byte> output_;
  const DType dtype_;
  const std::vector<int> areas_;
  const int64_t area_bytes_;
  const std::span<std::byte> scratch_;    ///< A tile a leaf.
  std::vector<const std::byte*> values_;  ///< Of the tile that is worked on, by leaf.
  std::vector<Fold> own_folds_;           ///< Of values that this member holds alone.
  std::vector<Fold> folds_;               ///< They, and what an owner adds.
  int64_t blocks_ = 0;
  int64_t block_bytes_ = 0;
  int64_t chunk_bytes_ = 0;
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
  std::vector<int> areas = AreasOf(plan, members);
  const int64_t most = std::max(1, 1 + *std::max_element(areas.begin(), areas.end()));
  const int64_t step = kLine * members;
  const int64_t area_bytes = static_cast<int64_t>(shared->layout().bulk_bytes) / most / step * step;
  if (area_bytes < kLeastAreaBytes) {
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
  ScratchPool::Piece scratch =
      group.scratch().Take(plan.leaves.size() * static_cast<size_t>(kTileBytes));
  SegmentTreeReduction work(call, plan, mine, output, dtype, areas, area_bytes,
                            {scratch.memory.get(), scratch.room});
  const Status status = work.Run();
  group.scratch().Return(std::move(scratch));
  HEDDLE_RETURN_IF_ERROR(status);
  // A member reads the others' values of its slice, and the slices that they added up.
  const Slices slices(static_cast<int64_t>(output.size()), members);
  std::vector<int64_t> travelling(static_cast<size_t>(members));
  for (size_t leaf = 0; leaf < areas.size(); ++leaf) {
    travelling[static_cast<size_t>(plan.leaves[leaf].member)] += areas[leaf] >= 0 ? 1 : 0;
  }
  const int own = call.position();
  for (int member = 0; member < members; ++member) {
    const int64_t to = travelling[static_cast<size_t>(own)] * slices.size(member);
    const int64_t from = travelling[static_cast<size_t>(member)] * slices.size(own);
    call.Count(member, to + slices.size(own), from + slices.size(member));
  }
  return true;
}

}  // namespace heddle::comm
