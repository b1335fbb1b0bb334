// Three ways, by size and by where the buffers lie:
//
//   small       everyone announces its data with the call and folds everyone's: one step.
//   registered  all buffers lie in shared memory: everyone folds its slice out of all inputs where
//               they lie and writes the result into all outputs. Two steps; each byte is read and
//               written once.
//   staged      private buffers: a block at a time goes through shared stages, two in turn, so that
//               a member fills one while another still reads the other. In an all-reduce everyone
//               copies in what the others fold, folds its own slice into its buffer and its stage,
//               and copies out what the others folded.
//
// The small and the registered form are those of shared-memory MPI collectives (Graham & Shipman
// 2008, doi:10.1007/978-3-540-87475-1_21). A step's data are published by the counter of Arrive and
// read after a wait for it.
#include <algorithm>
#include <array>
#include <cstring>

#include "comm/collective/fold.h"
#include "comm/collective/segment_collective.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/group.h"
#include "comm/group/segment.h"
#include "comm/message/call_signature.h"

namespace heddle::comm {

namespace {

/// Below it everyone folding everything costs less than another step; by what a member reads.
constexpr size_t kSmallReadBytes = size_t{256} << 10;

bool IsSmall(const SegmentCall& call, size_t bytes) {
  return bytes <= call.layout().small_bytes &&
         bytes * static_cast<size_t>(call.size() - 1) <= kSmallReadBytes;
}

class AllReducing {
 public:
  AllReducing(SegmentCall& call, std::span<std::byte> buffer, DType dtype, ReduceOp op)
      : call_(call),
        buffer_(buffer),
        dtype_(dtype),
        op_(op) {}

  Status Small() {
    std::array<const std::byte*, kMostSharing> inputs{};
    for (int member = 0; member < call_.size(); ++member) {
      inputs[static_cast<size_t>(member)] = call_.SmallData(member);
    }
    std::byte* const output = buffer_.data();
    FoldAll(std::span(inputs).first(static_cast<size_t>(call_.size())), std::span(&output, 1),
            buffer_.size(), dtype_, op_);
    return Status::Ok();
  }

  Status Registered(const SegmentPlaces& places) {
    const auto members = static_cast<size_t>(call_.size());
    const Slices slices(static_cast<int64_t>(buffer_.size()), call_.size());
    const int64_t begin = slices.begin(call_.position());
    const int64_t end = begin + slices.size(call_.position());
    HEDDLE_RETURN_IF_ERROR(call_.BeginWriting());
    for (int64_t at = begin; at < end; at += kSegmentWorkBytes) {
      std::array<const std::byte*, kMostSharing> inputs{};
      std::array<std::byte*, kMostSharing> outputs{};
      for (size_t i = 0; i < members; ++i) {
        inputs[i] = outputs[i] = places[i] + at;
      }
      FoldAll(std::span(inputs).first(members), std::span(outputs).first(members),
              static_cast<size_t>(std::min(kSegmentWorkBytes, end - at)), dtype_, op_);
      if (end - at > kSegmentWorkBytes) {
        // Whoever gives up here waits for the others' writes, not they for its own.
        call_.EndWriting();
        HEDDLE_RETURN_IF_ERROR(call_.Interrupted());
        HEDDLE_RETURN_IF_ERROR(call_.BeginWriting());
      }
    }
    call_.EndWriting();
    call_.Arrive();
    return call_.WaitAll();
  }

  Status Staged() {
    // Blocks of equal size, so that none is left over small.
    const auto total = static_cast<int64_t>(buffer_.size());
    const auto most = static_cast<int64_t>(call_.layout().bulk_bytes) / call_.size() / kLine *
                      kLine * call_.size();
    blocks_ = (total + most - 1) / most;
    block_bytes_ = ((total + blocks_ - 1) / blocks_ + kLine - 1) / kLine * kLine;
    chunk_bytes_ = Slices(block_bytes_, call_.size()).each;
    CopyIn(0);
    call_.Arrive();
    for (int64_t block = 0; block < blocks_; ++block) {
      HEDDLE_RETURN_IF_ERROR(call_.WaitAll());  // Everyone's inputs of this block.
      Fold(block);
      call_.Arrive();
      // The next block's stage held the block before this one. Its inputs were read before their
      // readers' results, which were waited for. Its results may still be copied out: they stay
      // where they are until the next fold, which waits for the inputs of all, and those follow
      // what a member copied out.
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
  Slices SlicesOf(int64_t block) const {
    const auto total = static_cast<int64_t>(buffer_.size());
    return {std::min(block_bytes_, total - block * block_bytes_), call_.size()};
  }

  void CopyIn(int64_t block) {
    const Slices slices = SlicesOf(block);
    std::byte* const stage = call_.Stage(call_.position(), block);
    for (int step = 1; step < call_.size(); ++step) {
      const int member = (call_.position() + step) % call_.size();
      std::memcpy(stage + ChunkBegin(member), From(block, slices.begin(member)),
                  static_cast<size_t>(slices.size(member)));
    }
  }

  // The own slice: inputs of the others out of their stages; the result into the buffer and into
  // the place of the own stage that holds no input.
  void Fold(int64_t block) {
    const Slices slices = SlicesOf(block);
    const int own = call_.position();
    std::array<const std::byte*, kMostSharing> inputs{};
    for (int member = 0; member < call_.size(); ++member) {
      inputs[static_cast<size_t>(member)] = member == own
                                                ? From(block, slices.begin(own))
                                                : call_.Stage(member, block) + ChunkBegin(own);
    }
    const std::array<std::byte*, 2> outputs{From(block, slices.begin(own)),
                                            call_.Stage(own, block) + ChunkBegin(own)};
    FoldAll(std::span(inputs).first(static_cast<size_t>(call_.size())), outputs,
            static_cast<size_t>(slices.size(own)), dtype_, op_);
  }

  void CopyOut(int64_t block) {
    const Slices slices = SlicesOf(block);
    for (int step = 1; step < call_.size(); ++step) {
      const int member = (call_.position() + step) % call_.size();
      std::memcpy(From(block, slices.begin(member)),
                  call_.Stage(member, block) + ChunkBegin(member),
                  static_cast<size_t>(slices.size(member)));
    }
  }

  // In a stage a member's chunk has the same place in every block, also in a shorter last one: what
  // is copied in must not touch the results of two blocks ago, which others may still copy out.
  int64_t ChunkBegin(int member) const { return member * chunk_bytes_; }
  std::byte* From(int64_t block, int64_t offset) {
    return buffer_.data() + block * block_bytes_ + offset;
  }

  SegmentCall& call_;
  const std::span<std::byte> buffer_;
  const DType dtype_;
  const ReduceOp op_;
  int64_t blocks_ = 0;
  int64_t block_bytes_ = 0;
  int64_t chunk_bytes_ = 0;
};

}  // namespace

Result<bool> SegmentAllReduce(Group& group,
                              std::span<std::byte> buffer,
                              DType dtype,
                              ReduceOp op,
                              const CollectiveOptions& options,
                              const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.segments().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  SegmentCall call(group, *shared, options, number);
  AllReducing work(call, buffer, dtype, op);
  const auto bytes = static_cast<int64_t>(buffer.size());
  const uint64_t shape =
      SegmentShapeOf(CallKind::kAllReduce, dtype, static_cast<uint64_t>(op), std::span(&bytes, 1));
  if (IsSmall(call, buffer.size())) {
    HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterSmall(shape, buffer));
    if (!entered) {
      return false;
    }
    HEDDLE_RETURN_IF_ERROR(work.Small());
    call.CountSmall(bytes);
    const int64_t others = call.size() - 1;
    HEDDLE_RETURN_IF_ERROR(call.Pace(others * bytes, others * bytes));
    return true;
  }
  call.Expose(buffer);
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterBulk(shape, buffer));
  if (!entered) {
    return false;
  }
  SegmentSizes sizes{};
  sizes.fill(buffer.size());
  SegmentPlaces places{};
  HEDDLE_RETURN_IF_ERROR(call.Locate(sizes, places));
  HEDDLE_RETURN_IF_ERROR(AllShared(places, call.size()) ? work.Registered(places) : work.Staged());
  // A member reads the others' parts of its slice, and the slices that they folded.
  const Slices slices(bytes, call.size());
  for (int member = 0; member < call.size(); ++member) {
    const int64_t both = slices.size(member) + slices.size(call.position());
    call.Count(member, both, both);
  }
  const int64_t moved = 2 * (bytes - slices.size(call.position()));
  HEDDLE_RETURN_IF_ERROR(call.Pace(moved, moved));
  return true;
}

}  // namespace heddle::comm
