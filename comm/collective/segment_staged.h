/// \file
/// Reductions of private buffers through the members' stages in shared memory, a block at a time.
///
/// Each member copies its values of a block into its stage, adds up its slice of the block from all
/// stages, stores the sum in its buffer and in its stage, and copies the other members' sums from
/// their stages. The kind of stores that write a stage (comm/transport/streaming_copy.h) determines
/// most of a reduction's speed. Members copy a block's values in two blocks ahead and copy its sums
/// out one block later, so that no member waits for one that is less than a block behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/segment_call.h"

namespace heddle::comm {

/// One staged reduction; the derived class provides the values and the addition. Thread: one.
class StagedReduction {
 public:
  /// `areas`: the most values, at least 1, that a member contributes. Each value has the size of
  /// `output`, which is the same at all members.
  StagedReduction(SegmentCall& call, std::span<std::byte> output, int64_t areas);
  virtual ~StagedReduction() = default;
  StagedReduction(const StagedReduction&) = delete;
  StagedReduction& operator=(const StagedReduction&) = delete;

  /// The most bytes of one value in a block; a whole number of cache lines for each member.
  static int64_t AreaBytes(const SegmentLayout& layout, int members, int64_t areas);

  /// Runs the reduction. Errors: those of the call.
  Status Run();

 protected:
  /// Copies `bytes` bytes, at most kTileBytes, from `offset` on of each of this member's values to
  /// `stage`; value i goes to stage + i * area_bytes().
  virtual void Bring(int64_t offset, size_t bytes, std::byte* stage) = 0;
  /// Returns the sum of `bytes` bytes from `offset` on, stored in the output or in memory of the
  /// derived class. stages[i]: the values of member i; null for this member.
  virtual const std::byte* Sum(int64_t offset,
                               size_t bytes,
                               std::span<const std::byte* const> stages) = 0;

  int64_t area_bytes() const { return area_bytes_; }

 private:
  Slices SlicesOf(int64_t block) const;
  std::byte* StageOf(int member, int64_t block, int slice) const;
  void CopyIn(int64_t block);
  void AddUp(int64_t block);
  void CopyOut(int64_t block);

  SegmentCall& call_;
  const std::span<std::byte> output_;
  const int64_t area_bytes_;
  int64_t blocks_ = 0;
  int64_t block_bytes_ = 0;
  int64_t chunk_bytes_ = 0;  ///< Bytes of a member's slice in an area.
};

}  // namespace heddle::comm
