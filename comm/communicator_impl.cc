#include "comm/communicator_impl.h"

#include <cstring>
#include <utility>

#include "comm/collective.h"
#include "comm/cost/cost.h"
#include "comm/shm_collective.h"

namespace heddle::comm {

namespace {

class CommunicatorImpl final : public Communicator {
 public:
  explicit CommunicatorImpl(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  ~CommunicatorImpl() override {
    group_->DropHandler();
    group_->Leave();
  }

  int rank() const override { return group_->options().rank; }
  int size() const override { return group_->size(); }
  int64_t generation() const override { return group_->options().generation; }
  const std::string& member_name(int rank) const override {
    return group_->options().members.at(static_cast<size_t>(rank)).name;
  }
  std::string transport(int peer) const override { return group_->transport(peer); }

  Work Send(int peer, uint64_t tag, std::span<const std::byte> data, bool urgent) override {
    return Work(group_->Send(peer, {.tag = tag, .space = 0}, data, urgent));
  }
  Work Recv(int peer, uint64_t tag, std::span<std::byte> data) override {
    return Work(group_->Recv(peer, {.tag = tag, .space = 0}, data));
  }

  Status AllReduce(std::span<std::byte> buffer,
                   DType dtype,
                   ReduceOp op,
                   const CollectiveOptions& options) override;
  Status ReduceScatter(std::span<const std::byte> input,
                       std::span<std::byte> output,
                       std::span<const int64_t> counts,
                       DType dtype,
                       ReduceOp op,
                       const CollectiveOptions& options) override;
  Status AllGather(std::span<const std::byte> input,
                   std::span<std::byte> output,
                   std::span<const int64_t> counts,
                   DType dtype,
                   const CollectiveOptions& options) override;
  Status Broadcast(std::span<std::byte> buffer,
                   int root,
                   const CollectiveOptions& options) override;
  Status Barrier(const CollectiveOptions& options) override {
    HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
    return TreeBarrier(*call);
  }
  Result<std::vector<Bytes>> AllGatherBytes(std::span<const std::byte> mine,
                                            const CollectiveOptions& options) override;
  Status ReduceTree(const TreeContributions& contributions,
                    std::span<const std::span<const std::byte>> mine,
                    std::span<std::byte> output,
                    DType dtype,
                    const CollectiveOptions& options) override;

  void Abort(const Status& reason) override { group_->Abort(reason); }
  void OnPeerLost(std::function<void(int peer, const Status& reason)> handler) override {
    group_->SetHandler(std::move(handler));
  }
  std::vector<int64_t> BytesSent() const override { return group_->BytesSent(); }

 private:
  bool Direct(const Collective& call, int64_t bytes) const {
    // Every member must choose alike, and knows only its own links: the choice is by size and
    // members.
    const LinkTable links(call.size());
    std::vector<int> positions(static_cast<size_t>(call.size()));
    for (size_t i = 0; i < positions.size(); ++i) {
      positions[i] = static_cast<int>(i);
    }
    return ChooseAllReduce(links, positions, bytes) == AllReduceAlgorithm::kDirect;
  }

  const std::shared_ptr<Group> group_;
};

Status CheckElements(size_t bytes, DType dtype) {
  if (bytes % static_cast<size_t>(SizeOf(dtype)) != 0) {
    return InvalidArgumentError("{} bytes are no whole number of {}", bytes, DTypeName(dtype));
  }
  return Status::Ok();
}

Status CheckShares(
    const Segments& segments, const Collective& call, size_t share, size_t whole, DType dtype) {
  const auto element = static_cast<size_t>(SizeOf(dtype));
  const auto own = static_cast<size_t>(segments.count(call.position()));
  const auto total = static_cast<size_t>(segments.total());
  if (share != own * element || whole != total * element) {
    return InvalidArgumentError("buffers of {} and {} bytes for {} and {} elements of {}", share,
                                whole, own, total, DTypeName(dtype));
  }
  return Status::Ok();
}

Status CommunicatorImpl::AllReduce(std::span<std::byte> buffer,
                                   DType dtype,
                                   ReduceOp op,
                                   const CollectiveOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckElements(buffer.size(), dtype));
  if (!buffer.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const bool done, ShmAllReduce(*group_, buffer, dtype, op, options));
    if (done) {
      return Status::Ok();
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
  if (call->size() == 1 || buffer.empty()) {
    return Status::Ok();
  }
  if (Direct(*call, static_cast<int64_t>(buffer.size()))) {
    return DirectAllReduce(*call, buffer, dtype, op);
  }
  const int64_t element = SizeOf(dtype);
  const Segments segments =
      Segments::Even(static_cast<int64_t>(buffer.size()) / element, call->size());
  const int own = call->position();
  const auto mine = Slice(buffer, segments.begin(own) * element, segments.count(own) * element);
  HEDDLE_RETURN_IF_ERROR(RingReduceScatter(*call, buffer, mine, segments, dtype, op));
  return RingAllGather(*call, buffer, segments, element);
}

Status CommunicatorImpl::ReduceScatter(std::span<const std::byte> input,
                                       std::span<std::byte> output,
                                       std::span<const int64_t> counts,
                                       DType dtype,
                                       ReduceOp op,
                                       const CollectiveOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
  HEDDLE_ASSIGN_OR_RETURN(const Segments segments, Segments::FromCounts(counts, call->size()));
  HEDDLE_RETURN_IF_ERROR(CheckShares(segments, *call, output.size(), input.size(), dtype));
  if (call->size() == 1) {
    std::copy(input.begin(), input.end(), output.begin());
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool done,
                          ShmReduceScatter(*group_, input, output, counts, dtype, op, options));
  if (done) {
    return Status::Ok();
  }
  return Direct(*call, static_cast<int64_t>(input.size()))
             ? DirectReduceScatter(*call, input, output, segments, dtype, op)
             : RingReduceScatter(*call, input, output, segments, dtype, op);
}

Status CommunicatorImpl::AllGather(std::span<const std::byte> input,
                                   std::span<std::byte> output,
                                   std::span<const int64_t> counts,
                                   DType dtype,
                                   const CollectiveOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
  HEDDLE_ASSIGN_OR_RETURN(const Segments segments, Segments::FromCounts(counts, call->size()));
  HEDDLE_RETURN_IF_ERROR(CheckShares(segments, *call, input.size(), output.size(), dtype));
  const int64_t element = SizeOf(dtype);
  if (!input.empty()) {  // It may lie in its place already.
    std::memmove(output.data() + segments.begin(call->position()) * element, input.data(),
                 input.size());
  }
  if (call->size() == 1) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool done, ShmAllGather(*group_, output, counts, dtype, options));
  if (done) {
    return Status::Ok();
  }
  return Direct(*call, static_cast<int64_t>(output.size()))
             ? DirectAllGather(*call, output, segments, element)
             : RingAllGather(*call, output, segments, element);
}

Status CommunicatorImpl::Broadcast(std::span<std::byte> buffer,
                                   int root,
                                   const CollectiveOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
  if (root < 0 || root >= call->size()) {
    return InvalidArgumentError("root {} in a group of {}", root, call->size());
  }
  if (call->size() == 1) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool done, ShmBroadcast(*group_, buffer, root, options));
  return done ? Status::Ok() : BroadcastFrom(*call, buffer, root);
}

Result<std::vector<Bytes>> CommunicatorImpl::AllGatherBytes(std::span<const std::byte> mine,
                                                            const CollectiveOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
  return TreeGatherBytes(*call, mine);
}

Status CommunicatorImpl::ReduceTree(const TreeContributions& contributions,
                                    std::span<const std::span<const std::byte>> mine,
                                    std::span<std::byte> output,
                                    DType dtype,
                                    const CollectiveOptions& options) {
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    return InvalidArgumentError("a reproducible reduction of {}", DTypeName(dtype));
  }
  HEDDLE_RETURN_IF_ERROR(CheckElements(output.size(), dtype));
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options));
  return ReduceByTree(*call, contributions, mine, output, dtype);
}

}  // namespace

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Group> group) {
  return std::make_unique<CommunicatorImpl>(std::move(group));
}

}  // namespace heddle::comm
