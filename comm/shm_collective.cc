// Three ways, by size and by where the buffers lie:
//
//   small       everyone announces its data with the call and folds everyone's: one step.
//   registered  all buffers lie in shared memory: everyone folds its slice out of all inputs where
//               they lie and writes the result into all outputs. Two steps; each byte is read and
//               written once.
//   staged      private buffers: a block at a time goes through shared slots, two in turn, so that
//               a member fills one while another still reads the other. In an all-reduce everyone
//               copies in what the others fold, folds its own slice into its buffer and its slot,
//               and copies out what the others folded.
//
// The small and the registered form are those of shared-memory MPI collectives (Graham & Shipman
// 2008, doi:10.1007/978-3-540-87475-1_21). A step's data are published by the counter of Arrive and
// read after a wait for it.
#include "comm/shm_collective.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/call_card.h"
#include "comm/collective.h"
#include "comm/fold.h"
#include "comm/group.h"
#include "comm/shm_group.h"

namespace heddle::comm {

namespace {

/// Below it everyone folding everything costs less than another step; by what a member reads.
constexpr size_t kSmallReadBytes = size_t{128} << 10;
/// Slices begin at cache lines.
constexpr int64_t kLine = 64;
/// Between two looks at whether the group has ended.
constexpr int64_t kWorkBytes = int64_t{1} << 20;

using Places = std::array<std::byte*, kMostSharing>;
using Sizes = std::array<size_t, kMostSharing>;

// What must be equal at all members.
uint64_t ShapeOf(CallKind kind, DType dtype, uint64_t detail, std::span<const int64_t> sizes) {
  uint64_t shape =
      (static_cast<uint64_t>(kind) << 16) | (static_cast<uint64_t>(dtype) << 8) | detail;
  for (const int64_t size : sizes) {
    shape = (shape ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15U;
    shape ^= shape >> 29;
  }
  return shape;
}

bool IsSmall(const ShmCall& call, size_t bytes) {
  return bytes <= call.layout().small_bytes &&
         bytes * static_cast<size_t>(call.size() - 1) <= kSmallReadBytes;
}

bool AllShared(const Places& places, int members) {
  return std::none_of(places.begin(), places.begin() + members,
                      [](const std::byte* place) { return place == nullptr; });
}

/// Even slices of elements, beginning at cache lines.
struct Slices {
  int64_t total = 0;  ///< Bytes.
  int64_t each = 0;

  Slices(int64_t bytes, int members) : total(bytes) {
    const int64_t share = (bytes + members - 1) / members;
    each = (share + kLine - 1) / kLine * kLine;
  }
  int64_t begin(int member) const { return std::min(total, member * each); }
  int64_t size(int member) const { return std::min(total, (member + 1) * each) - begin(member); }
};

class AllReducing {
 public:
  AllReducing(ShmCall& call, std::span<std::byte> buffer, DType dtype, ReduceOp op)
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

  Status Registered(const Places& places) {
    const auto members = static_cast<size_t>(call_.size());
    const Slices slices(static_cast<int64_t>(buffer_.size()), call_.size());
    const int64_t begin = slices.begin(call_.position());
    const int64_t end = begin + slices.size(call_.position());
    HEDDLE_RETURN_IF_ERROR(call_.BeginWriting());
    for (int64_t at = begin; at < end; at += kWorkBytes) {
      std::array<const std::byte*, kMostSharing> inputs{};
      std::array<std::byte*, kMostSharing> outputs{};
      for (size_t i = 0; i < members; ++i) {
        inputs[i] = outputs[i] = places[i] + at;
      }
      FoldAll(std::span(inputs).first(members), std::span(outputs).first(members),
              static_cast<size_t>(std::min(kWorkBytes, end - at)), dtype_, op_);
      if (end - at > kWorkBytes) {
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
      // The next block's slot held the block before this one. Its inputs were read before their
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
    std::byte* const slot = call_.BulkSlot(call_.position(), block);
    for (int step = 1; step < call_.size(); ++step) {
      const int member = (call_.position() + step) % call_.size();
      std::memcpy(slot + ChunkBegin(member), From(block, slices.begin(member)),
                  static_cast<size_t>(slices.size(member)));
    }
  }

  // The own slice: inputs of the others out of their slots; the result into the buffer and into the
  // place of the own slot that holds no input.
  void Fold(int64_t block) {
    const Slices slices = SlicesOf(block);
    const int own = call_.position();
    std::array<const std::byte*, kMostSharing> inputs{};
    for (int member = 0; member < call_.size(); ++member) {
      inputs[static_cast<size_t>(member)] = member == own
                                                ? From(block, slices.begin(own))
                                                : call_.BulkSlot(member, block) + ChunkBegin(own);
    }
    const std::array<std::byte*, 2> outputs{From(block, slices.begin(own)),
                                            call_.BulkSlot(own, block) + ChunkBegin(own)};
    FoldAll(std::span(inputs).first(static_cast<size_t>(call_.size())), outputs,
            static_cast<size_t>(slices.size(own)), dtype_, op_);
  }

  void CopyOut(int64_t block) {
    const Slices slices = SlicesOf(block);
    for (int step = 1; step < call_.size(); ++step) {
      const int member = (call_.position() + step) % call_.size();
      std::memcpy(From(block, slices.begin(member)),
                  call_.BulkSlot(member, block) + ChunkBegin(member),
                  static_cast<size_t>(slices.size(member)));
    }
  }

  // In a slot a member's chunk has the same place in every block, also in a shorter last one: what
  // is copied in must not touch the results of two blocks ago, which others may still copy out.
  int64_t ChunkBegin(int member) const { return member * chunk_bytes_; }
  std::byte* From(int64_t block, int64_t offset) {
    return buffer_.data() + block * block_bytes_ + offset;
  }

  ShmCall& call_;
  const std::span<std::byte> buffer_;
  const DType dtype_;
  const ReduceOp op_;
  int64_t blocks_ = 0;
  int64_t block_bytes_ = 0;
  int64_t chunk_bytes_ = 0;
};

/// Shares of any size, cut into the same number of pieces each, so that all members have something
/// to do in every turn.
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
  /// From the share's begin.
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

Status StagedReduceScatter(ShmCall& call,
                           std::span<const std::byte> input,
                           std::span<std::byte> output,
                           std::span<const int64_t> counts,
                           DType dtype,
                           ReduceOp op) {
  const Shares shares(counts, SizeOf(dtype), static_cast<int64_t>(call.layout().bulk_bytes), false);
  const int own = call.position();
  for (int64_t turn = 0; turn < shares.turns(); ++turn) {
    // Everyone's slot has the same layout: the pieces of this turn, one after the other. It was
    // last read two turns ago, before its readers arrived in the turn before this one.
    std::byte* const slot = call.BulkSlot(own, turn);
    int64_t offset = 0;
    int64_t own_offset = 0;
    for (int member = 0; member < call.size(); ++member) {
      const int64_t size = shares.size(member, turn);
      if (member == own) {
        own_offset = offset;
      } else if (size > 0) {
        std::memcpy(slot + offset,
                    input.data() + shares.share_begin(member) + shares.begin(member, turn),
                    static_cast<size_t>(size));
      }
      offset += size;
    }
    call.Arrive();
    HEDDLE_RETURN_IF_ERROR(call.WaitAll());
    std::array<const std::byte*, kMostSharing> inputs{};
    for (int member = 0; member < call.size(); ++member) {
      inputs[static_cast<size_t>(member)] =
          member == own ? input.data() + shares.share_begin(own) + shares.begin(own, turn)
                        : call.BulkSlot(member, turn) + own_offset;
    }
    std::byte* const target = output.data() + shares.begin(own, turn);
    FoldAll(std::span(inputs).first(static_cast<size_t>(call.size())), std::span(&target, 1),
            static_cast<size_t>(shares.size(own, turn)), dtype, op);
  }
  return Status::Ok();
}

Status RegisteredReduceScatter(ShmCall& call,
                               const Places& places,
                               std::span<std::byte> output,
                               int64_t begin,
                               DType dtype,
                               ReduceOp op) {
  const auto size = static_cast<int64_t>(output.size());
  for (int64_t at = 0; at < size; at += kWorkBytes) {
    HEDDLE_RETURN_IF_ERROR(call.Interrupted());
    std::array<const std::byte*, kMostSharing> inputs{};
    for (int member = 0; member < call.size(); ++member) {
      inputs[static_cast<size_t>(member)] = places[static_cast<size_t>(member)] + begin + at;
    }
    std::byte* const target = output.data() + at;
    FoldAll(std::span(inputs).first(static_cast<size_t>(call.size())), std::span(&target, 1),
            static_cast<size_t>(std::min(kWorkBytes, size - at)), dtype, op);
  }
  HEDDLE_RETURN_IF_ERROR(call.ConfirmReads());
  call.Arrive();
  return call.WaitAll();
}

Status StagedAllGather(ShmCall& call, std::span<std::byte> output, const Shares& shares) {
  const int own = call.position();
  for (int64_t turn = 0; turn < shares.turns(); ++turn) {
    std::memcpy(call.BulkSlot(own, turn),
                output.data() + shares.share_begin(own) + shares.begin(own, turn),
                static_cast<size_t>(shares.size(own, turn)));
    call.Arrive();
    for (int step = 1; step < call.size(); ++step) {
      const int member = (own + step) % call.size();
      HEDDLE_RETURN_IF_ERROR(call.WaitFor(member, 0));
      std::memcpy(output.data() + shares.share_begin(member) + shares.begin(member, turn),
                  call.BulkSlot(member, turn), static_cast<size_t>(shares.size(member, turn)));
    }
  }
  return Status::Ok();
}

// Copies what lies in others' shared memory; in pieces, so that an end of the group is seen.
Status CopyShared(ShmCall& call, std::byte* to, const std::byte* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kWorkBytes) {
    HEDDLE_RETURN_IF_ERROR(call.Interrupted());
    std::memcpy(to + at, from + at, static_cast<size_t>(std::min(kWorkBytes, bytes - at)));
  }
  return call.ConfirmReads();
}

Status RegisteredAllGather(ShmCall& call,
                           const Places& places,
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

Status StagedBroadcast(ShmCall& call, std::span<std::byte> buffer, int root) {
  const auto slot_bytes = static_cast<int64_t>(call.layout().bulk_bytes);
  const auto total = static_cast<int64_t>(buffer.size());
  const int64_t turns = (total + slot_bytes - 1) / slot_bytes;
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::byte* const own = buffer.data() + turn * slot_bytes;
    const auto size = static_cast<size_t>(std::min(slot_bytes, total - turn * slot_bytes));
    std::byte* const slot = call.BulkSlot(root, turn);
    if (call.position() == root) {
      // The slot is free when everyone has read it, two turns ago.
      if (turn >= 2) {
        HEDDLE_RETURN_IF_ERROR(call.WaitAll(1));
      }
      std::memcpy(slot, own, size);
    } else {
      HEDDLE_RETURN_IF_ERROR(call.WaitFor(root, -1));
      std::memcpy(own, slot, size);
    }
    call.Arrive();
  }
  return Status::Ok();
}

}  // namespace

Result<bool> ShmAllReduce(Group& group,
                          std::span<std::byte> buffer,
                          DType dtype,
                          ReduceOp op,
                          const CollectiveOptions& options,
                          const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.shm().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  ShmCall call(group, *shared, options, number);
  AllReducing work(call, buffer, dtype, op);
  const auto bytes = static_cast<int64_t>(buffer.size());
  const uint64_t shape =
      ShapeOf(CallKind::kAllReduce, dtype, static_cast<uint64_t>(op), std::span(&bytes, 1));
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
  Sizes sizes{};
  sizes.fill(buffer.size());
  Places places{};
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

Result<bool> ShmReduceScatter(Group& group,
                              std::span<const std::byte> input,
                              std::span<std::byte> output,
                              std::span<const int64_t> counts,
                              DType dtype,
                              ReduceOp op,
                              const CollectiveOptions& options,
                              const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.shm().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  ShmCall call(group, *shared, options, number);
  const uint64_t shape =
      ShapeOf(CallKind::kReduceScatter, dtype, static_cast<uint64_t>(op), counts);
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, call.EnterBulk(shape, input));
  if (!entered) {
    return false;
  }
  Sizes sizes{};
  sizes.fill(input.size());
  Places places{};
  HEDDLE_RETURN_IF_ERROR(call.Locate(sizes, places));
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

Result<bool> ShmAllGather(Group& group,
                          std::span<std::byte> output,
                          std::span<const int64_t> counts,
                          DType dtype,
                          const CollectiveOptions& options,
                          const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.shm().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  ShmCall call(group, *shared, options, number);
  const Shares shares(counts, SizeOf(dtype), static_cast<int64_t>(call.layout().bulk_bytes), true);
  const int own = call.position();
  const auto mine = Slice(output, shares.share_begin(own), shares.share_bytes(own));
  HEDDLE_ASSIGN_OR_RETURN(const bool entered,
                          call.EnterBulk(ShapeOf(CallKind::kAllGather, dtype, 0, counts), mine));
  if (!entered) {
    return false;
  }
  Sizes sizes{};
  Places places{};
  for (int member = 0; member < call.size(); ++member) {
    sizes[static_cast<size_t>(member)] = static_cast<size_t>(shares.share_bytes(member));
  }
  HEDDLE_RETURN_IF_ERROR(call.Locate(sizes, places));
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

Result<bool> ShmBroadcast(Group& group,
                          std::span<std::byte> buffer,
                          int root,
                          const CollectiveOptions& options,
                          const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.shm().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  ShmCall call(group, *shared, options, number);
  const auto bytes = static_cast<int64_t>(buffer.size());
  const bool is_root = call.position() == root;
  HEDDLE_ASSIGN_OR_RETURN(
      const bool entered,
      call.EnterBulk(ShapeOf(CallKind::kBroadcast, DType::kU8, static_cast<uint64_t>(root),
                             std::span(&bytes, 1)),
                     is_root ? std::span<const std::byte>(buffer) : std::span<const std::byte>()));
  if (!entered) {
    return false;
  }
  Sizes sizes{};
  sizes[static_cast<size_t>(root)] = buffer.size();
  Places places{};
  HEDDLE_RETURN_IF_ERROR(call.Locate(sizes, places));
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

Result<bool> ShmBarrier(Group& group, const CollectiveOptions& options, const CallNumber& number) {
  HEDDLE_ASSIGN_OR_RETURN(const auto shared, group.shm().Get(options, number));
  if (shared == nullptr) {
    return false;
  }
  ShmCall call(group, *shared, options, number);
  return call.EnterSmall(ShapeOf(CallKind::kBarrier, DType::kU8, 0, {}), {});
}

}  // namespace heddle::comm
