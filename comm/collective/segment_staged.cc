// The order of a member's steps, and why a stage's place is free when it is written again. A place
// serves every fourth block. In turn b a member
//
//   1. waits for everyone's values of block b,
//   2. adds up its slice of b, and brings its values of b + 2,
//   3. arrives: its arrival b, which everyone's turn b + 2 waits for in step 1,
//   4. waits for everyone's sums of block b - 1, their arrival b - 1, and copies them out.
//
// Values of b + 2 take the place of those of b - 2, which the others had read by their arrivals
// b - 2: step 1 of turn b waited for them. The sum of b takes the place of that of b - 4, which the
// others copied out in their turns b - 3, before their arrivals b - 2. The next call in the slot
// begins when all have ended this one.
#include "comm/collective/segment_staged.h"

#include <algorithm>
#include <array>

#include "comm/transport/streaming_copy.h"

namespace heddle::comm {

namespace {

/// Number of blocks by which values are copied in before they are added up.
constexpr int64_t kAhead = 2;

}  // namespace

int64_t StagedReduction::AreaBytes(const SegmentLayout& layout, int members, int64_t areas) {
  const int64_t step = kLine * members;
  return static_cast<int64_t>(layout.bulk_bytes) / 2 / areas / step * step;
}

StagedReduction::StagedReduction(SegmentCall& call, std::span<std::byte> output, int64_t areas)
    : call_(call),
      output_(output),
      area_bytes_(AreaBytes(call.layout(), call.size(), areas)) {
  // Blocks of equal size, so that none is left over small.
  const auto total = static_cast<int64_t>(output.size());
  blocks_ = (total + area_bytes_ - 1) / area_bytes_;
  block_bytes_ = ((total + blocks_ - 1) / blocks_ + kLine - 1) / kLine * kLine;
  chunk_bytes_ = Slices(block_bytes_, call.size()).each;
}

Status StagedReduction::Run() {
  for (int64_t block = 0; block < std::min(kAhead, blocks_); ++block) {
    CopyIn(block);
  }
  call_.Arrive();
  for (int64_t block = 0; block < blocks_; ++block) {
    HEDDLE_RETURN_IF_ERROR(call_.WaitAll(std::min(block, kAhead - 1)));
    AddUp(block);
    if (block + kAhead < blocks_) {
      CopyIn(block + kAhead);
    }
    call_.Arrive();
    if (block > 0) {
      HEDDLE_RETURN_IF_ERROR(call_.WaitAll(1));
      CopyOut(block - 1);
    }
  }
  HEDDLE_RETURN_IF_ERROR(call_.WaitAll());
  CopyOut(blocks_ - 1);
  return Status::Ok();
}

Slices StagedReduction::SlicesOf(int64_t block) const {
  const auto total = static_cast<int64_t>(output_.size());
  return {std::min(block_bytes_, total - block * block_bytes_), call_.size()};
}

// Two blocks lie in each of a member's two stages. A slice has the same place in every block, also
// in a shorter last one: else what is brought could touch sums that others still copy out.
std::byte* StagedReduction::StageOf(int member, int64_t block, int slice) const {
  const auto half = static_cast<int64_t>(call_.layout().bulk_bytes) / 2;
  return call_.Stage(member, block / 2) + block % 2 * half + slice * chunk_bytes_;
}

void StagedReduction::CopyIn(int64_t block) {
  const Slices slices = SlicesOf(block);
  for (int step = 1; step < call_.size(); ++step) {
    const int member = (call_.position() + step) % call_.size();
    std::byte* const stage = StageOf(call_.position(), block, member);
    for (int64_t at = 0; at < slices.size(member); at += kTileBytes) {
      Bring(block * block_bytes_ + slices.begin(member) + at,
            static_cast<size_t>(std::min(kTileBytes, slices.size(member) - at)), stage + at);
    }
  }
}

// The sum is stored in this member's stage at the place of its own slice, which no other member
// adds up.
void StagedReduction::AddUp(int64_t block) {
  const Slices slices = SlicesOf(block);
  const int own = call_.position();
  for (int64_t at = 0; at < slices.size(own); at += kTileBytes) {
    std::array<const std::byte*, kMaxSharing> stages{};
    for (int member = 0; member < call_.size(); ++member) {
      stages[static_cast<size_t>(member)] =
          member == own ? nullptr : StageOf(member, block, own) + at;
    }
    const auto bytes = static_cast<size_t>(std::min(kTileBytes, slices.size(own) - at));
    const int64_t offset = block * block_bytes_ + slices.begin(own) + at;
    const std::byte* const sum =
        Sum(offset, bytes, std::span(stages).first(static_cast<size_t>(call_.size())));
    CopyToStage(StageOf(own, block, own) + at, sum, bytes);
    if (sum != output_.data() + offset) {
      CopyResult(output_.data() + offset, sum, bytes, output_.size());
    }
  }
}

void StagedReduction::CopyOut(int64_t block) {
  const Slices slices = SlicesOf(block);
  for (int step = 1; step < call_.size(); ++step) {
    const int member = (call_.position() + step) % call_.size();
    CopyResult(output_.data() + block * block_bytes_ + slices.begin(member),
               StageOf(member, block, member), static_cast<size_t>(slices.size(member)),
               output_.size());
  }
}

}  // namespace heddle::comm
