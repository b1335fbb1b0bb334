/// \file
/// Collectives of members that share memory. Each is tried first: false means that the group has
/// no segment (or that it is full of other calls), agreed by all its members, and that messages
/// have to do it. Arguments and errors are those of Communicator, which has checked the sizes;
/// disagreements are for CallWaits::Conclude. `number` is the call's, and that of the messages that
/// may have to carry it.
/// Other sums than the reproducible ones are folded in the order of the members, whatever the size
/// and wherever the buffers lie.
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
/// `counts` has one entry a member, and their sums match the buffers.
Result<bool> SegmentReduceScatter(Group& group,
                                  std::span<const std::byte> input,
                                  std::span<std::byte> output,
                                  std::span<const int64_t> counts,
                                  DType dtype,
                                  ReduceOp op,
                                  const CollectiveOptions& options,
                                  const CallNumber& number);
/// The own share lies in its place in `output` already.
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
/// Of large results alone. `counts`: a hash of the contributions, which all must agree on.
Result<bool> SegmentReduceTree(Group& group,
                               const FoldPlan& plan,
                               std::span<const std::span<const std::byte>> mine,
                               std::span<std::byte> output,
                               DType dtype,
                               uint64_t counts,
                               const CollectiveOptions& options,
                               const CallNumber& number);
/// A call of nothing: all enter it before anyone leaves it.
Result<bool> SegmentBarrier(Group& group,
                            const CollectiveOptions& options,
                            const CallNumber& number);

}  // namespace heddle::comm
