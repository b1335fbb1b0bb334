/// \file
/// Collectives of members that share memory. The communicator tries each of them first. All members
/// get the same answer: false means that the group has no shared segment, or that its slots are in
/// use by other calls, so that the collective must be done by messages. Arguments and errors are
/// those of Communicator, which has checked the sizes; CallWaits::Conclude handles disagreements.
/// `number` identifies the call, also if messages carry it.
/// Sums other than the reproducible reduction are added in the order of the members, whatever the
/// size and wherever the buffers lie.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "comm/communicator.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

class Group;
struct FoldPlan;

Result<bool> SegmentAllReduce(Group& group,
                              std::span<std::byte> buffer,
                              DType dtype,
                              ReduceOp op,
                              const CollectiveOptions& options,
                              const CallNumber& number);
/// `counts` has one entry per member, and its sum matches the buffers.
Result<bool> SegmentReduceScatter(Group& group,
                                  std::span<const std::byte> input,
                                  std::span<std::byte> output,
                                  std::span<const int64_t> counts,
                                  DType dtype,
                                  ReduceOp op,
                                  const CollectiveOptions& options,
                                  const CallNumber& number);
/// The caller has filled this member's share of `output`.
Result<bool> SegmentAllGather(Group& group,
                              std::span<std::byte> output,
                              std::span<const int64_t> counts,
                              DType dtype,
                              const CollectiveOptions& options,
                              const CallNumber& number);
Result<bool> SegmentBroadcast(Group& group,
                              std::span<std::byte> buffer,
                              int root,
                              const CollectiveOptions& options,
                              const CallNumber& number);
/// Handles large results only; false for small ones. `counts`: a hash of the contributions, on
/// which all members must agree.
Result<bool> SegmentReduceTree(Group& group,
                               const FoldPlan& plan,
                               std::span<const std::span<const std::byte>> mine,
                               std::span<std::byte> output,
                               DType dtype,
                               uint64_t counts,
                               const CollectiveOptions& options,
                               const CallNumber& number);
/// Returns after all members have entered the call.
Result<bool> SegmentBarrier(Group& group,
                            const CollectiveOptions& options,
                            const CallNumber& number);

}  // namespace heddle::comm
