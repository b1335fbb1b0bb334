/// \file
/// Reductions of private buffers through the members' stages, a block at a time.
///
/// Everyone copies what the others are to add into its own stage, adds up its slice of the block
/// out of all stages, leaves the sum in its buffer and in its stage, and copies out what the others
/// added up. Which stores write a stage (comm/transport/streaming_copy.h) is most of a reduction's
/// speed. Members bring a block's values two blocks ahead and copy its sums out one block later, so
/// that nobody waits for another who is less than a block behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/segment_call.h"

namespace heddle::comm {

/// One such reduction; what is added, and how, is the derived class's. Thread: one.
class StagedReduction {
 public:
  /// A member brings at most `areas` values (at least 1) of the size of `output`, which all members
  /// have in common.
  StagedReduction(SegmentCall& call, std::span<std::byte> output, int64_t areas);
  virtual ~StagedReduction() = default;
  StagedReduction(const StagedReduction&) = delete;
  StagedReduction& operator=(const StagedReduction&) = delete;

  /// Bytes of one value in a block, at most; whole lines for each member.
  static int64_t AreaBytes(const SegmentLayout& layout, int members, int64_t areas);

  /// Errors: the call's.
  Status Run();

 protected:
  /// Writes the own values of `bytes` bytes from `offset` on, at most kTileBytes, to `stage`; value
  /// i lies at stage + i * area_bytes().
  virtual void Bring(int64_t offset, size_t bytes, std::byte* stage) = 0;
  /// The sum of as many, in the output or in memory of its own. stages[i]: what member i brought;
  /// null for this one.
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
  int64_t chunk_bytes_ = 0;  ///< Of a member's slice in an area.
};

}  // namespace heddle::comm
