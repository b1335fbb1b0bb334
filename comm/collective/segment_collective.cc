// Reduce-scatter, all-gather, broadcast and barrier by the three algorithms that
// segment_all_reduce.cc describes: small, registered and staged.
#include "comm/collective/segment_collective.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/collective/collective.h"
#include "comm/collective/fold.h"
#include "comm/collective/segment_steps.h"
#include "comm/group/group.h"
#include "comm/group/segment_call.h"
#include "comm/message/call_signature.h"
#include "comm/transport/streaming_copy.h"

namespace heddle::comm {

namespace {

/// Shares of any size, each divided into the same number of pieces, so that all members have work
/// in every turn.
class Shares {
 public:
  /// `room`: bytes that all pieces of a turn together (or, `alone`, the largest) may have.
  Shares(std::span<const int64_t> counts, int64_t element, int64_t room, bool alone)
      : counts_(counts),
        element_(element) {
    int64_t largest = 0;
    int64_t sum = 0;
    for (const int64_t count : counts) {
      largest = std::max(largest, count);
      sum += count;
    }
    // A piece is at most an element above its part of the share.
    const int64_t slack = alone ? 1 : static_cast<int64_t>(counts.size());
    const int64_t elements = std::max<int64_t>(1, room / element - slack);
    turns_ = ((alone ? largest : sum) + elements - 1) / elements;
  }

  int64_t turns() const { return turns_; }
  int64_t share_begin(int member) const {
    int64_t begin = 0;
    for (int i = 0; i < member; ++i) {
      begin += counts_[static_cast<size_t>(i)];
    }
    return begin * element_;
  }
  int64_t share_bytes(int member) const { return counts_[static_cast<size_t>(member)] * element_; }
  /// Offset of a piece from the share's beginning.
  int64_t begin(int member, int64_t turn) const {
    return EvenBegin(counts_[static_cast<size_t>(member)], turns_, turn) * element_;
  }
  int64_t size(int member, int64_t turn) const {
    return begin(member, turn + 1) - begin(member, turn);
  }

 private:
  const std::span<const int64_t> counts_;
  const int64_t element_;
  int64_t turns_ = 0;
};

Status StagedReduceScatter(SegmentCall& call,
                           std::span<const std::byte> input,
                           std::span<std::byte> output,
                           std::span<const int64_t> counts,
                           DType dtype,
                           ReduceOp op) {
  const Shares shares(counts, SizeOf(dtype), static_cast<int64_t>(call.layout().bulk_bytes), false);
  const int own = call.position();
  for (int64_t turn = 0; turn < shares.turns(); ++turn) {
    // Every member's stage has the same layout: the pieces of this turn, one after the other. It
    // was last read two turns ago, before its readers arrived in the turn before this one.
    std::byte* const stage = call.Stage(own, turn);
    int64_t offset = 0;
    int64_t own_offset = 0;
    for (int member = 0; member < call.size(); ++member) {
      const int64_t size = shares.size(member, turn);
      if (member == own) {
        own_offset = offset;
      } else if (size > 0) {
        CopyToStage(stage + offset,
                    input.data() + shares.share_begin(member) + shares.begin(member, turn),
                    static_cast<size_t>(size));
      }
      offset += size;
    }
    call.Arrive();
    HEDDLE_RETURN_IF_ERROR(call.WaitAll());
    std::array<const std::byte*, kMaxSharing> inputs{};
    for (int member = 0; member < call.size(); ++member) {
      inputs[static_cast<size_t>(member)] =
          member == own ? input.data() + shares.share_begin(own) + shares.begin(own, turn)
                        : call.Stage(member, turn) + own_offset;
    }
    std::byte* const target = output.data() + shares.begin(own, turn);
    FoldAll(std::span(inputs).first(static_cast<size_t>(call.size())), std::span(&target, 1),
            static_cast<size_t>(shares.size(own, turn)), dtype, op);
  }
  return Status::Ok();
}

Status RegisteredReduceScatter(SegmentCall& call,
                               const SegmentPlaces& places,
                               std::span<std::byte> output,
                               int64_t begin,
                               DType dtype,
                               ReduceOp op) {
  const auto size = static_cast<int64_t>(output.size());
  for (int64_t at = 0; at < size; at += kSegmentWorkBytes) {
    HEDDLE_RETURN_IF_ERROR(call.Interrupted());
    std::array<const std::byte*, kMaxSharing> inputs{};
    for (int member = 0; member < call.size(); ++member) {
      inputs[static_cast<size_t>(member)] = places[static_cast<size_t>(member)] + begin + at;
    }
    std::byte* const target = output.data() + at;
    FoldAll(std::span(inputs).first(static_cast<size_t>(call.size())), std::span(&target, 1),
            static_cast<size_t>(std::min(kSegmentWorkBytes, size - at)), dtype, op);
  }
  HEDDLE_RETURN_IF_ERROR(call.ConfirmReads());
  call.Arrive();
  return call.WaitAll();
}

Status StagedAllGather(SegmentCall& call, std::span<std::byte> output, const Shares& shares) {
  const int own = call.position();
  for (int64_t turn = 0; turn < shares.turns(); ++turn) {
    CopyToStage(call.Stage(own, turn),
                output.data() + shares.share_begin(own) + shares.begin(own, turn),
                static_cast<size_t>(shares.size(own, turn)));
    call.Arrive();
    for (int step = 1; step < call.size(); ++step) {
      const int member = (own + step) % call.size();
      HEDDLE_RETURN_IF_ERROR(call.WaitFor(member, 0));
      CopyResult(output.data() + shares.share_begin(member) + shares.begin(member, turn),
                 call.Stage(member, turn), static_cast<size_t>(shares.size(member, turn)),
                 output.size());
    }
  }
  return Status::Ok();
}

// Copies what lies in others' shared memory; in pieces, so that an end of the group is seen.
Status CopyShared(SegmentCall& call, std::byte* to, const std::byte* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kSegmentWorkBytes) {
    HEDDLE_RETURN_IF_ERROR(call.Interrupted());
    std::memcpy(to + at, from + at, static_cast<size_t>(std::min(kSegmentWorkBytes, bytes - at)));
  }
  return call.ConfirmReads();
}

Status RegisteredAllGather(SegmentCall& call,
                           const SegmentPlaces& places,
                           std::span<std::byte> output,
                           const Shares& shares) {
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.position() + step) % call.size();
    const int64_t begin = shares.share_begin(member);
    HEDDLE_RETURN_IF_ERROR(CopyShared(call, output.data() + begin,
                                      places[static_cast<size_t>(member)],
                                      shares.share_bytes(member)));
  }
  call.Arrive();
  return call.WaitAll();
}

Status StagedBroadcast(SegmentCall& call, std::span<std::byte> buffer, int root) {
  const auto stage_bytes = static_cast<int64_t>(call.layout().bulk_bytes);
  const auto total = static_cast<int64_t>(buffer.size());
  const int64_t turns = (total + stage_bytes - 1) / stage_bytes;
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::byte* const own = buffer.data() + turn * stage_bytes;
    const auto size = static_cast<size_t>(std::min(stage_bytes, total - turn * stage_bytes));
    std::byte* const stage = call.Stage(root, turn);
    if (call.position() == root) {
      // The stage is free when everyone has read it, two turns ago.
      if (turn >= 2) {
        HEDDLE_RETURN_IF_ERROR(call.WaitAll(1));
      }
      CopyToStage(stage, own, size);
    } else {
      HEDDLE_RETURN_IF_ERROR(call.WaitFor(root, -1));
      CopyResult(own, stage, size, buffer.size());
    }
    call.Arrive();
  }
  return Status::Ok();
}

}  // namespace

Result<bool> SegmentReduceScatter(Group& group,
                                  std::span<const std::byte> input,
                                  std::span<std::byte> output,
                                  std::span<const int64_t> counts,
                                  DType dtype,
                                  ReduceOp op,
                                  const CollectiveOptions& options,
                                  const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.segments().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  SegmentCall call(group, *shared, options, number);
  const uint64_t shape =
      SegmentShapeOf(CallKind::kReduceScatter, dtype, static_cast<uint64_t>(op), counts);
  SegmentSizes sizes{};
  sizes.fill(input.size());
  SegmentPlaces places{};
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterBulk(shape, input, sizes, places));
  if (!entered) {
    return false;
  }
  const Shares shares(counts, SizeOf(dtype), 1, false);
  const int own = call.position();
  HEDDLE_RETURN_IF_ERROR(
      AllShared(places, call.size())
          ? RegisteredReduceScatter(call, places, output, shares.share_begin(own), dtype, op)
          : StagedReduceScatter(call, input, output, counts, dtype, op));
  for (int member = 0; member < call.size(); ++member) {
    call.Count(member, shares.share_bytes(member), shares.share_bytes(own));
  }
  HEDDLE_RETURN_IF_ERROR(call.Pace(static_cast<int64_t>(input.size()) - shares.share_bytes(own),
                                   (call.size() - 1) * shares.share_bytes(own)));
  return true;
}

Result<bool> SegmentAllGather(Group& group,
                              std::span<std::byte> output,
                              std::span<const int64_t> counts,
                              DType dtype,
                              const CollectiveOptions& options,
                              const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.segments().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  SegmentCall call(group, *shared, options, number);
  const Shares shares(counts, SizeOf(dtype), static_cast<int64_t>(call.layout().bulk_bytes), true);
  const int own = call.position();
  const auto mine = Slice(output, shares.share_begin(own), shares.share_bytes(own));
  SegmentSizes sizes{};
  for (int member = 0; member < call.size(); ++member) {
    sizes[static_cast<size_t>(member)] = static_cast<size_t>(shares.share_bytes(member));
  }
  SegmentPlaces places{};
  const uint64_t shape = SegmentShapeOf(CallKind::kAllGather, dtype, 0, counts);
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterBulk(shape, mine, sizes, places));
  if (!entered) {
    return false;
  }
  HEDDLE_RETURN_IF_ERROR(AllShared(places, call.size())
                             ? RegisteredAllGather(call, places, output, shares)
                             : StagedAllGather(call, output, shares));
  for (int member = 0; member < call.size(); ++member) {
    call.Count(member, shares.share_bytes(own), shares.share_bytes(member));
  }
  HEDDLE_RETURN_IF_ERROR(call.Pace((call.size() - 1) * shares.share_bytes(own),
                                   static_cast<int64_t>(output.size()) - shares.share_bytes(own)));
  return true;
}

Result<bool> SegmentBroadcast(Group& group,
                              std::span<std::byte> buffer,
                              int root,
                              const CollectiveOptions& options,
                              const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.segments().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  SegmentCall call(group, *shared, options, number);
  const auto bytes = static_cast<int64_t>(buffer.size());
  const bool is_root = call.position() == root;
  SegmentSizes sizes{};
  sizes[static_cast<size_t>(root)] = buffer.size();
  SegmentPlaces places{};
  const uint64_t shape = SegmentShapeOf(CallKind::kBroadcast, DType::kU8,
                                        static_cast<uint64_t>(root), std::span(&bytes, 1));
  const auto mine = is_root ? std::span<const std::byte>(buffer) : std::span<const std::byte>();
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterBulk(shape, mine, sizes, places));
  if (!entered) {
    return false;
  }
  if (const std::byte* const place = places[static_cast<size_t>(root)]; place == nullptr) {
    HEDDLE_RETURN_IF_ERROR(StagedBroadcast(call, buffer, root));
  } else {
    if (!is_root) {
      HEDDLE_RETURN_IF_ERROR(CopyShared(call, buffer.data(), place, bytes));
    }
    call.Arrive();
    HEDDLE_RETURN_IF_ERROR(is_root ? call.WaitAll() : Status::Ok());
  }
  for (int member = 0; member < call.size(); ++member) {
    call.Count(member, is_root ? bytes : 0, member == root ? bytes : 0);
  }
  const int64_t others = call.size() - 1;
  HEDDLE_RETURN_IF_ERROR(call.Pace(is_root ? others * bytes : 0, is_root ? 0 : bytes));
  return true;
}

Result<bool> SegmentBarrier(Group& group,
                            const CollectiveOptions& options,
                            const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.segments().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  SegmentCall call(group, *shared, options, number);
  return call.EnterSmall(SegmentShapeOf(CallKind::kBarrier, DType::kU8, 0, {}), {});
}

}  // namespace heddle::comm
