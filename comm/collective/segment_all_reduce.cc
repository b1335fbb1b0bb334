// Three ways, by size and by where the buffers lie:
//
//   small       each member announces its data with the call and reduces all members' data: one
//               step.
//   registered  all buffers lie in shared memory: each member reduces its slice of all inputs in
//               place and writes the result into all outputs. Two steps; each byte is read and
//               written once.
//   staged      private buffers: a block at a time goes through shared stages (segment_staged.h).
//
// The small and the registered form are those of shared-memory MPI collectives (Graham & Shipman
// 2008, doi:10.1007/978-3-540-87475-1_21). A step's data are published by the counter of Arrive and
// read after a wait for it.
#include <algorithm>
#include <array>

#include "comm/collective/fold.h"
#include "comm/collective/segment_collective.h"
#include "comm/collective/segment_staged.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/group.h"
#include "comm/group/segment_call.h"
#include "comm/message/call_signature.h"
#include "comm/transport/streaming_copy.h"

namespace heddle::comm {

namespace {

/// The most bytes that a member reads if every member reduces everything. Up to it, that costs less
/// than another step.
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
    std::array<const std::byte*, kMaxSharing> inputs{};
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
      std::array<const std::byte*, kMaxSharing> inputs{};
      std::array<std::byte*, kMaxSharing> outputs{};
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

  Status Staged() { return StagedSums(call_, buffer_, dtype_, op_).Run(); }

 private:
  /// The sums of all members' buffers, in the order of the members.
  class StagedSums : public StagedReduction {
   public:
    StagedSums(SegmentCall& call, std::span<std::byte> buffer, DType dtype, ReduceOp op)
        : StagedReduction(call, buffer, 1),
          own_(static_cast<size_t>(call.position())),
          buffer_(buffer),
          dtype_(dtype),
          op_(op) {}

   private:
    void Bring(int64_t offset, size_t bytes, std::byte* stage) override {
      CopyToStage(stage, buffer_.data() + offset, bytes);
    }
    const std::byte* Sum(int64_t offset,
                         size_t bytes,
                         std::span<const std::byte* const> stages) override {
      std::byte* const mine = buffer_.data() + offset;
      std::array<const std::byte*, kMaxSharing> inputs{};
      std::copy(stages.begin(), stages.end(), inputs.begin());
      inputs[own_] = mine;
      FoldAll(std::span(inputs).first(stages.size()), std::span(&mine, 1), bytes, dtype_, op_);
      return mine;
    }

    const size_t own_;
    const std::span<std::byte> buffer_;
    const DType dtype_;
    const ReduceOp op_;
  };

  SegmentCall& call_;
  const std::span<std::byte> buffer_;
  const DType dtype_;
  const ReduceOp op_;
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
  SegmentSizes sizes{};
  sizes.fill(buffer.size());
  SegmentPlaces places{};
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterBulk(shape, buffer, sizes, places));
  if (!entered) {
    return false;
  }
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
