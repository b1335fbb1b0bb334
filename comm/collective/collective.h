/// \file
/// The common parts of all collectives: members by position, a key space of messages for each call,
/// one deadline, and operations that never outlive the call's buffers; and the algorithms.
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

/// Bulk is sent in pieces of this size, so that reducing one piece overlaps the transfer of the
/// next.
inline constexpr int64_t kPieceBytes = int64_t{256} << 10;

/// Phases of collectives. A phase and two numbers identify a message of a call between two members.
/// The phase is part of the message key (call_signature.h); at most 62.
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

/// One call of a collective on this worker. The destructor cancels the operations still in flight,
/// so that their buffers may be freed. Thread: one caller at a time.
class Collective {
 public:
  using Pending = std::shared_ptr<Work::State>;

  /// Begins the call `number`. Errors: kInvalidArgument (the ranks of the group are not different,
  /// or do not include this worker).
  static Result<std::unique_ptr<Collective>> Begin(Group& group,
                                                   const CollectiveOptions& options,
                                                   const CallNumber& number);
  ~Collective();
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// A part of this call among some of its members, given by position; they include this worker and
  /// have positions 0, 1 … there, in the order given. Two parts, or a part and this call, may use a
  /// phase at the same time only if they have no pair of members in common.
  std::unique_ptr<Collective> Among(const std::vector<int>& positions) const;

  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  uint64_t tag() const { return number_.tag; }

  /// Starts sending `data` to the member at position `to`. (phase, major, minor) identifies the
  /// message within the pair; major and minor are less than 2^18.
  Pending Send(int to, Phase phase, int64_t major, int64_t minor, std::span<const std::byte> data);
  /// Starts receiving the matching message of the member at position `from`.
  Pending Recv(int from, Phase phase, int64_t major, int64_t minor, std::span<std::byte> data);
  /// Waits for `pending`. A wait that lasts checks whether a member is in another call of this tag.
  /// If so, or if sizes disagree, the whole group is notified and every member's call fails with
  /// kInvalidArgument (call_diagnosis.h).
  Status Wait(const Pending& pending);
  /// Waits for all operations started so far. Returns the first error.
  Status WaitAll();
  /// Cancels all operations in flight. Called on an error before buffers are freed that are not the
  /// call's own scratch.
  void CancelAll();
  /// `bytes` bytes of unspecified content, valid until the call ends.
  std::span<std::byte> Scratch(int64_t bytes);

 private:
  Collective(Group& group,
             std::vector<int> ranks,
             int position,
             const CallNumber& number,
             bool urgent,
             Deadline deadline)
      : group_(group),
        ranks_(std::move(ranks)),
        position_(position),
        number_(number),
        urgent_(urgent),
        deadline_(deadline) {}
  bool IsUrgent(Phase phase) const;
  MessageKey KeyOf(Phase phase, int64_t major, int64_t minor) const;
  void Keep(const Pending& pending);

  Group& group_;
  const std::vector<int> ranks_;
  const int position_;
  const CallNumber number_;
  const bool urgent_;
  const Deadline deadline_;
  std::vector<Pending> in_flight_;
  std::vector<ScratchPool::Piece> scratch_;
  size_t prune_at_ = 256;
};

/// Index of the first element of part `i` when `total` elements are split into `parts` parts as
/// evenly as possible, larger parts first.
inline int64_t EvenBegin(int64_t total, int64_t parts, int64_t i) {
  return total / parts * i + std::min(total % parts, i);
}

/// A division of a vector of elements into one segment per member.
struct Segments {
  std::vector<int64_t> first;  ///< Element offsets of the n segments, then the total.

  static Segments Even(int64_t elements, int members);
  /// Segments of counts[i] elements for member i. Errors: kInvalidArgument (a negative count, not
  /// `members` counts, or the sum overflows).
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

/// The sizes in bytes by which the cost of exchanging `segments` is predicted. `element`: bytes of
/// an element.
ShareSizes SizesOf(const Segments& segments, int64_t element);

/// Checks a buffer's size. Errors: kInvalidArgument (more than 64 GiB, so that the pieces cannot be
/// numbered).
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
Status ReduceScatterByTree(Collective& call,
                           const FoldPlan& plan,
                           std::span<const std::span<const std::byte>> mine,
                           std::span<std::byte> output,
                           const Segments& segments,
                           DType dtype);
/// All-reduce by the algorithm that `topology` chooses.
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
/// All-gather by the algorithm that `links` chooses. The caller has filled this member's segment of
/// `output`.
Status AllGatherAmong(Collective& call,
                      const FlatLinks& links,
                      std::span<std::byte> output,
                      const Segments& segments,
                      int64_t element);
/// All-to-all, one pair of members at a time. The caller copies this member's block for itself.
Status PairwiseAllToAll(Collective& call,
                        std::span<const std::byte> input,
                        const Segments& sent,
                        std::span<std::byte> output,
                        const Segments& received,
                        int64_t element);

Status DirectAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op);
Status DoublingAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op);
/// `output` may be this member's segment of `input`.
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
/// `output` may be this member's segment of `input`.
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
