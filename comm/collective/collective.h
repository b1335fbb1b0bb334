/// \file
/// What every collective is made of: members by position, messages in a tag space of its own, one
/// deadline, and operations that never outlive the call's buffers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/tensor/dtype.h"
#include "comm/communicator.h"
#include "comm/cost/topology.h"
#include "comm/group/group.h"
#include "comm/message/call_signature.h"

namespace heddle::comm {

struct FoldPlan;

/// Bulk travels in pieces of this size, so that folding one overlaps the next one's journey.
inline constexpr int64_t kPieceBytes = int64_t{256} << 10;

/// Phases of collectives: what tells the messages of one call between two members apart, with two
/// numbers. Part of the message key (call_signature.h); at most 62.
enum class Phase : uint8_t {
  kBarrierUp = 1,
  kBarrierDown,
  kGatherUp,
  kGatherUpRest,
  kGatherDown,
  kGatherDownRest,
  kBroadcast,
  kExchange,
  kDoubling,
  kDoublingResult,
  kShareReduce,
  kShareGather,
  kRingReduce,
  kRingGather,
  kAllToAll,
  kTreeContribution,
  kTreeResult,
};

/// One call of a collective on this worker. Its end cancels what is still in flight, so that
/// buffers may go. Thread: one caller at a time.
class Collective {
 public:
  using Pending = std::shared_ptr<Work::State>;

  /// Errors: kInvalidArgument (the group is not ascending, or lacks this worker).
  static Result<std::unique_ptr<Collective>> Begin(Group& group,
                                                   const CollectiveOptions& options,
                                                   const CallNumber& number);
  ~Collective();
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// The same call among some of its members (positions in this one, own among them), who take the
  /// places 0, 1 … in the order given. Two such calls, and this one, may use a phase at once only
  /// where they have no pair of members in common.
  std::unique_ptr<Collective> Among(const std::vector<int>& positions) const;

  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  uint64_t tag() const { return number_.tag; }

  /// To and from the member at a position. (phase, major, minor) tells the messages of a pair
  /// apart; major and minor < 2^18.
  Pending Send(int to, Phase phase, int64_t major, int64_t minor, std::span<const std::byte> data);
  Pending Recv(int from, Phase phase, int64_t major, int64_t minor, std::span<std::byte> data);
  /// A wait that lasts looks for members that are in another call of this tag. When there is one,
  /// or sizes disagree, the whole group is told and everyone's call ends as kInvalidArgument
  /// (call_diagnosis.h).
  Status Wait(const Pending& pending);
  /// Waits for everything started so far; the first error.
  Status WaitAll();
  /// Takes every buffer back from what is in flight: called on an error before buffers go that are
  /// not the call's own scratch.
  void CancelAll();
  /// `bytes` bytes of unspecified content, until the call ends; nothing in flight outlives them.
  std::span<std::byte> Scratch(int64_t bytes);

 private:
  Collective(Group& group,
             std::vector<int> ranks,
             int position,
             const CallNumber& number,
             Deadline deadline)
      : group_(group),
        ranks_(std::move(ranks)),
        position_(position),
        number_(number),
        deadline_(deadline) {}
  MessageKey KeyOf(Phase phase, int64_t major, int64_t minor) const;
  void Keep(const Pending& pending);

  Group& group_;
  const std::vector<int> ranks_;
  const int position_;
  const CallNumber number_;
  const Deadline deadline_;
  std::vector<Pending> in_flight_;
  std::vector<ScratchPool::Piece> scratch_;
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

/// Shares in bytes, as their cost depends on them.
ShareSizes SizesOf(const Segments& segments, int64_t element);

/// Fails unless the buffer's pieces can be numbered (64 GiB).
Status CheckSize(size_t bytes);

// The algorithms; arguments are checked by the communicator. Contracts: communicator.h.
Status TreeBarrier(Collective& call);
Result<std::vector<Bytes>> TreeGatherBytes(Collective& call, std::span<const std::byte> mine);
Status BroadcastFrom(Collective& call, std::span<std::byte> buffer, int root);
Status ReduceByTree(Collective& call,
                    const FoldPlan& plan,
                    std::span<const std::span<const std::byte>> mine,
                    std::span<std::byte> output,
                    DType dtype);
/// By the algorithm that `topology` chooses.
Status AllReduceAmong(Collective& call,
                      const Topology& topology,
                      std::span<std::byte> buffer,
                      DType dtype,
                      ReduceOp op);
Status ReduceScatterAmong(Collective& call,
                          const FlatLinks& links,
                          std::span<const std::byte> input,
                          std::span<std::byte> output,
                          const Segments& segments,
                          DType dtype,
                          ReduceOp op);
/// Own segment of `output` is filled already.
Status AllGatherAmong(Collective& call,
                      const FlatLinks& links,
                      std::span<std::byte> output,
                      const Segments& segments,
                      int64_t element);
/// Own blocks are copied by the caller.
Status PairwiseAllToAll(Collective& call,
                        std::span<const std::byte> input,
                        const Segments& sent,
                        std::span<std::byte> output,
                        const Segments& received,
                        int64_t element);

Status DirectAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op);
Status DoublingAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op);
/// `output` may be the own segment of `input`.
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
/// `output` may be the own segment of `input`.
Status RingReduceScatter(Collective& call,
                         std::span<const std::byte> input,
                         std::span<std::byte> output,
                         const Segments& segments,
                         DType dtype,
                         ReduceOp op);
Status RingAllGather(Collective& call,
                     std::span<std::byte> output,
                     const Segments& segments,
                     int64_t element);

}  // namespace heddle::comm
