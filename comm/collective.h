/// \file
/// What every collective is made of: members by position, messages in a tag space of its own, one
/// deadline, and operations that never outlive the call's buffers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/group.h"

namespace heddle::comm {

/// Bulk travels in pieces of this size, so that folding one overlaps the next one's journey.
inline constexpr int64_t kPieceBytes = int64_t{256} << 10;

/// Phases of collectives; part of the message key, apart from user messages (space 0).
enum class Phase : uint8_t {
  kBarrierUp = 1,
  kBarrierDown,
  kGatherUp,
  kGatherUpRest,
  kGatherDown,
  kGatherDownRest,
  kBroadcast,
  kExchange,
  kRingReduce,
  kRingGather,
  kTreeContribution,
  kTreeResult,
};

/// One call of a collective on this worker. Its end cancels what is still in flight, so that
/// buffers may go. Thread: one caller at a time.
class Collective {
 public:
  using Pending = std::shared_ptr<Work::State>;

  /// Errors: kInvalidArgument (the group is not ascending, or lacks this worker).
  static Result<std::unique_ptr<Collective>> Begin(Group& group, const CollectiveOptions& options);
  ~Collective();
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::vector<int>& ranks() const { return ranks_; }
  uint64_t tag() const { return tag_; }

  /// To and from the member at a position. (phase, major, minor) tells the messages of a pair
  /// apart; major < 2^24, minor < 2^32.
  Pending Send(int to, Phase phase, int64_t major, int64_t minor, std::span<const std::byte> data);
  Pending Recv(int from, Phase phase, int64_t major, int64_t minor, std::span<std::byte> data);
  Status Wait(const Pending& pending) { return pending->Wait(deadline_); }
  /// Waits for everything started so far; the first error.
  Status WaitAll();
  /// Takes every buffer back from what is in flight: called on an error before buffers go.
  void CancelAll();

 private:
  Collective(Group& group, std::vector<int> ranks, int position, uint64_t tag, Deadline deadline)
      : group_(group),
        ranks_(std::move(ranks)),
        position_(position),
        tag_(tag),
        deadline_(deadline) {}
  void Keep(const Pending& pending);

  Group& group_;
  const std::vector<int> ranks_;
  const int position_;
  const uint64_t tag_;
  const Deadline deadline_;
  std::vector<Pending> in_flight_;
  size_t prune_at_ = 256;
};

/// First of part `i` when `total` things are split into `parts` parts as even as possible, larger
/// ones first.
inline int64_t EvenBegin(int64_t total, int64_t parts, int64_t i) {
  return total / parts * i + std::min(total % parts, i);
}

/// Segments of a vector of elements, one a member.
struct Segments {
  std::vector<int64_t> first;  ///< n + 1 element offsets.

  static Segments Even(int64_t elements, int members);
  /// Errors: kInvalidArgument (negative, or other than `members`, or the sum overflows).
  static Result<Segments> FromCounts(std::span<const int64_t> counts, int members);
  int64_t begin(int i) const { return first[static_cast<size_t>(i)]; }
  int64_t count(int i) const {
    return first[static_cast<size_t>(i) + 1] - first[static_cast<size_t>(i)];
  }
  int64_t total() const { return first.back(); }
};

inline std::span<std::byte> Slice(std::span<std::byte> bytes, int64_t offset, int64_t size) {
  return bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
}
inline std::span<const std::byte> Slice(std::span<const std::byte> bytes,
                                        int64_t offset,
                                        int64_t size) {
  return bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
}

// The algorithms; arguments are checked by the communicator. Contracts: communicator.h.
Status TreeBarrier(Collective& call);
Result<std::vector<Bytes>> TreeGatherBytes(Collective& call, std::span<const std::byte> mine);
Status BroadcastFrom(Collective& call, std::span<std::byte> buffer, int root);
Status ReduceByTree(Collective& call,
                    const TreeContributions& contributions,
                    std::span<const std::span<const std::byte>> mine,
                    std::span<std::byte> output,
                    DType dtype);
Status DirectAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op);
Status DirectReduceScatter(Collective& call,
                           std::span<const std::byte> input,
                           std::span<std::byte> output,
                           const Segments& segments,
                           DType dtype,
                           ReduceOp op);
Status DirectAllGather(Collective& call,
                       std::span<std::byte> output,
                       const Segments& segments,
                       int64_t element);
Status RingReduceScatter(Collective& call,
                         std::span<const std::byte> input,
                         std::span<std::byte> output,
                         const Segments& segments,
                         DType dtype,
                         ReduceOp op);
/// Own segment of `output` is filled already.
Status RingAllGather(Collective& call,
                     std::span<std::byte> output,
                     const Segments& segments,
                     int64_t element);

}  // namespace heddle::comm
