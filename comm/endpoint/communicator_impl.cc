#include "comm/endpoint/communicator_impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/thread.h"
#include "comm/collective/collective.h"
#include "comm/collective/fold_plan.h"
#include "comm/collective/segment_collective.h"
#include "comm/endpoint/progress.h"
#include "comm/endpoint/topology_cache.h"

namespace heddle::comm {

namespace {

class CommunicatorImpl final : public Communicator {
 public:
  explicit CommunicatorImpl(std::shared_ptr<Group> group)
      : group_(std::move(group)),
        topologies_(group_->options().links),
        bulk_calls_(group_, TrafficClass::kBulk),
        urgent_calls_(group_, TrafficClass::kUrgent) {}
  ~CommunicatorImpl() override {
    group_->losses().DropHandler();
    group_->Leave();
  }

  int rank() const override { return group_->options().rank; }
  int size() const override { return group_->size(); }
  int64_t generation() const override { return group_->options().generation; }
  const std::string& member_name(int rank) const override {
    return group_->options().members.at(static_cast<size_t>(rank)).name;
  }
  std::string transport(int peer) const override { return group_->transport(peer); }
  std::string ports(int peer) const override;
  bool places(int peer) const override;
  Status RegisterDeviceMemory(int peer, std::span<const std::byte> bytes, bool urgent) override;

  Work Send(int peer, uint64_t tag, std::span<const std::byte> data, bool urgent) override {
    return Work(group_->Send(peer, {.tag = tag, .space = 0}, data, urgent));
  }
  Work Recv(int peer, uint64_t tag, std::span<std::byte> data, bool urgent) override {
    return Work(group_->Recv(peer, {.tag = tag, .space = 0}, data, urgent));
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
  Status AllToAll(std::span<const std::byte> input,
                  std::span<const int64_t> send_counts,
                  std::span<std::byte> output,
                  std::span<const int64_t> receive_counts,
                  DType dtype,
                  const CollectiveOptions& options) override;
  Status Broadcast(std::span<std::byte> buffer,
                   int root,
                   const CollectiveOptions& options) override;
  Status Barrier(const CollectiveOptions& options) override;
  Result<std::vector<Bytes>> AllGatherBytes(std::span<const std::byte> mine,
                                            const CollectiveOptions& options) override;
  Status ReduceTree(const TreeContributions& contributions,
                    std::span<const std::span<const std::byte>> mine,
                    std::span<std::byte> output,
                    DType dtype,
                    const CollectiveOptions& options) override;
  Status ReduceScatterTree(const TreeContributions& contributions,
                           std::span<const std::span<const std::byte>> mine,
                           std::span<std::byte> output,
                           std::span<const int64_t> counts,
                           DType dtype,
                           const CollectiveOptions& options) override;

  Work Start(std::function<Status()> call, bool urgent) override {
    return Work((urgent ? urgent_calls_ : bulk_calls_).Start(std::move(call)));
  }

  void Abort(const Status& reason) override { group_->Abort(reason); }
  void OnPeerLost(std::function<void(int peer, const Status& reason)> handler) override {
    group_->losses().SetHandler(std::move(handler));
  }
  Status ShareLinks(std::span<const Link> own, const CollectiveOptions& options) override;
  Status ShareLinkEnd(const LinkEnd& own,
                      const MeasuredLinks& measured,
                      const TransportPreference& preference,
                      const CollectiveOptions& options) override;
  std::shared_ptr<const LinkTable> links() const override { return topologies_.links(); }
  std::vector<int64_t> BytesSent() const override { return group_->BytesSent(); }

 private:
  /// Workers of this host for each of its cores, at least 1.
  double Crowding() const;
  Result<bool> Concluded(const Result<bool>& done) {
    return done.ok() ? done : Result<bool>(group_->waits().Conclude(done.status()));
  }
  std::shared_ptr<const Topology> TopologyOf(const CollectiveOptions& options) {
    return topologies_.Of(options.group, size());
  }

  const std::shared_ptr<Group> group_;
  TopologyCache topologies_;
  Progress bulk_calls_;
  Progress urgent_calls_;
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

uint64_t HashOf(std::span<const int64_t> counts) {
  return Hash64(std::as_bytes(counts));
}

uint64_t HashOf(size_t bytes) {
  const auto value = static_cast<int64_t>(bytes);
  return HashOf(std::span(&value, 1));
}

bool CommunicatorImpl::places(int peer) const {
  const auto channel = group_->ChannelOf(peer, TrafficClass::kBulk);
  return channel.ok() && (*channel)->places();
}

Status CommunicatorImpl::RegisterDeviceMemory(int peer,
                                              std::span<const std::byte> bytes,
                                              bool urgent) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto channel,
      group_->ChannelOf(peer, urgent ? TrafficClass::kUrgent : TrafficClass::kBulk));
  return channel->RegisterDeviceMemory(bytes);
}

std::string CommunicatorImpl::ports(int peer) const {
  std::string ports;
  for (const TrafficClass traffic_class : {TrafficClass::kBulk, TrafficClass::kUrgent}) {
    const auto channel = group_->ChannelOf(peer, traffic_class);
    const std::string port = channel.ok() ? (*channel)->port() : "";
    if (!port.empty() && port != ports) {
      ports += (ports.empty() ? "" : ", ") + port;
    }
  }
  return ports;
}

Status CommunicatorImpl::AllReduce(std::span<std::byte> buffer,
                                   DType dtype,
                                   ReduceOp op,
                                   const CollectiveOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckElements(buffer.size(), dtype));
  HEDDLE_RETURN_IF_ERROR(CheckSize(buffer.size()));
  const CallNumber number = group_->calls().Next(
      options,
      {.kind = CallKind::kAllReduce, .dtype = dtype, .op = op, .counts = HashOf(buffer.size())});
  if (!buffer.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(
        const bool done, Concluded(SegmentAllReduce(*group_, buffer, dtype, op, options, number)));
    if (done) {
      return Status::Ok();
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  if (call->size() == 1 || buffer.empty()) {
    return Status::Ok();
  }
  return AllReduceAmong(*call, *TopologyOf(options), buffer, dtype, op);
}

Status CommunicatorImpl::ReduceScatter(std::span<const std::byte> input,
                                       std::span<std::byte> output,
                                       std::span<const int64_t> counts,
                                       DType dtype,
                                       ReduceOp op,
                                       const CollectiveOptions& options) {
  const CallNumber number = group_->calls().Next(
      options,
      {.kind = CallKind::kReduceScatter, .dtype = dtype, .op = op, .counts = HashOf(counts)});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  HEDDLE_ASSIGN_OR_RETURN(const Segments segments, Segments::FromCounts(counts, call->size()));
  HEDDLE_RETURN_IF_ERROR(CheckShares(segments, *call, output.size(), input.size(), dtype));
  HEDDLE_RETURN_IF_ERROR(CheckSize(input.size()));
  if (call->size() == 1) {
    std::copy(input.begin(), input.end(), output.begin());
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const bool done,
      Concluded(SegmentReduceScatter(*group_, input, output, counts, dtype, op, options, number)));
  return done ? Status::Ok()
              : ReduceScatterAmong(*call, TopologyOf(options)->flat(), input, output, segments,
                                   dtype, op);
}

Status CommunicatorImpl::AllGather(std::span<const std::byte> input,
                                   std::span<std::byte> output,
                                   std::span<const int64_t> counts,
                                   DType dtype,
                                   const CollectiveOptions& options) {
  const CallNumber number = group_->calls().Next(
      options, {.kind = CallKind::kAllGather, .dtype = dtype, .counts = HashOf(counts)});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  HEDDLE_ASSIGN_OR_RETURN(const Segments segments, Segments::FromCounts(counts, call->size()));
  HEDDLE_RETURN_IF_ERROR(CheckShares(segments, *call, input.size(), output.size(), dtype));
  HEDDLE_RETURN_IF_ERROR(CheckSize(output.size()));
  const int64_t element = SizeOf(dtype);
  if (!input.empty()) {  // It may lie in its place already.
    std::memmove(output.data() + segments.begin(call->position()) * element, input.data(),
                 input.size());
  }
  if (call->size() == 1) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool done, Concluded(SegmentAllGather(*group_, output, counts,
                                                                      dtype, options, number)));
  return done ? Status::Ok()
              : AllGatherAmong(*call, TopologyOf(options)->flat(), output, segments, element);
}

Status CommunicatorImpl::AllToAll(std::span<const std::byte> input,
                                  std::span<const int64_t> send_counts,
                                  std::span<std::byte> output,
                                  std::span<const int64_t> receive_counts,
                                  DType dtype,
                                  const CollectiveOptions& options) {
  // Each member has counts of its own: a pair that disagrees sees it by the messages' sizes.
  const CallNumber number =
      group_->calls().Next(options, {.kind = CallKind::kAllToAll, .dtype = dtype});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  HEDDLE_ASSIGN_OR_RETURN(const Segments sent, Segments::FromCounts(send_counts, call->size()));
  HEDDLE_ASSIGN_OR_RETURN(const Segments received,
                          Segments::FromCounts(receive_counts, call->size()));
  const int64_t element = SizeOf(dtype);
  if (input.size() != static_cast<size_t>(sent.total() * element) ||
      output.size() != static_cast<size_t>(received.total() * element)) {
    return InvalidArgumentError("buffers of {} and {} bytes for {} and {} elements of {}",
                                input.size(), output.size(), sent.total(), received.total(),
                                DTypeName(dtype));
  }
  const int own = call->position();
  if (sent.count(own) != received.count(own)) {
    return InvalidArgumentError("{} elements to itself and {} from itself", sent.count(own),
                                received.count(own));
  }
  std::ranges::copy(
      Slice(input, sent.begin(own) * element, sent.count(own) * element),
      Slice(output, received.begin(own) * element, received.count(own) * element).begin());
  return PairwiseAllToAll(*call, input, sent, output, received, element);
}

Status CommunicatorImpl::Broadcast(std::span<std::byte> buffer,
                                   int root,
                                   const CollectiveOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckSize(buffer.size()));
  const CallNumber number = group_->calls().Next(options, {.kind = CallKind::kBroadcast,
                                                           .dtype = DType::kU8,
                                                           .root = static_cast<uint32_t>(root),
                                                           .counts = HashOf(buffer.size())});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  if (root < 0 || root >= call->size()) {
    return InvalidArgumentError("root {} in a group of {}", root, call->size());
  }
  if (call->size() == 1) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool done,
                          Concluded(SegmentBroadcast(*group_, buffer, root, options, number)));
  return done ? Status::Ok() : BroadcastFrom(*call, buffer, root);
}

Status CommunicatorImpl::Barrier(const CollectiveOptions& options) {
  const CallNumber number = group_->calls().Next(options, {.kind = CallKind::kBarrier});
  HEDDLE_ASSIGN_OR_RETURN(const bool done, Concluded(SegmentBarrier(*group_, options, number)));
  if (done) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  return TreeBarrier(*call);
}

Result<std::vector<Bytes>> CommunicatorImpl::AllGatherBytes(std::span<const std::byte> mine,
                                                            const CollectiveOptions& options) {
  const CallNumber number = group_->calls().Next(options, {.kind = CallKind::kAllGatherBytes});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  return TreeGatherBytes(*call, mine);
}

// Sums of other types are not reproducible.
Status CheckReproducible(size_t bytes, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    return InvalidArgumentError("a reproducible reduction of {}", DTypeName(dtype));
  }
  HEDDLE_RETURN_IF_ERROR(CheckElements(bytes, dtype));
  return CheckSize(bytes);
}

// Goes on from `seed`, the hash of the sizes.
uint64_t HashOf(const TreeContributions& contributions, uint64_t seed) {
  uint64_t counts = seed;
  for (const auto& nodes : contributions.nodes) {
    counts = counts * 31 + nodes.size();
    for (const TreeNode& node : nodes) {
      counts = (counts * 31 + static_cast<uint64_t>(node.level)) * 31 +
               static_cast<uint64_t>(node.index);
    }
  }
  return HashOf(counts);
}

Status CommunicatorImpl::ReduceTree(const TreeContributions& contributions,
                                    std::span<const std::span<const std::byte>> mine,
                                    std::span<std::byte> output,
                                    DType dtype,
                                    const CollectiveOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckReproducible(output.size(), dtype));
  const uint64_t counts = HashOf(contributions, HashOf(output.size()));
  const CallNumber number = group_->calls().Next(
      options, {.kind = CallKind::kReduceTree, .dtype = dtype, .counts = counts});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  HEDDLE_RETURN_IF_ERROR(
      CheckContributions(contributions, call->size(), call->position(), mine, output.size()));
  HEDDLE_ASSIGN_OR_RETURN(const FoldPlan plan, MakeFoldPlan(contributions));
  HEDDLE_ASSIGN_OR_RETURN(
      const bool done,
      Concluded(SegmentReduceTree(*group_, plan, mine, output, dtype, counts, options, number)));
  return done ? Status::Ok() : ReduceByTree(*call, plan, mine, output, dtype);
}

Status CommunicatorImpl::ReduceScatterTree(const TreeContributions& contributions,
                                           std::span<const std::span<const std::byte>> mine,
                                           std::span<std::byte> output,
                                           std::span<const int64_t> counts,
                                           DType dtype,
                                           const CollectiveOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckReproducible(output.size(), dtype));
  const CallNumber number =
      group_->calls().Next(options, {.kind = CallKind::kReduceScatterTree,
                                     .dtype = dtype,
                                     .counts = HashOf(contributions, HashOf(counts))});
  HEDDLE_ASSIGN_OR_RETURN(const auto call, Collective::Begin(*group_, options, number));
  HEDDLE_ASSIGN_OR_RETURN(const Segments segments, Segments::FromCounts(counts, call->size()));
  const auto whole = static_cast<size_t>(segments.total() * SizeOf(dtype));
  HEDDLE_RETURN_IF_ERROR(CheckSize(whole));
  HEDDLE_RETURN_IF_ERROR(CheckShares(segments, *call, output.size(), whole, dtype));
  HEDDLE_RETURN_IF_ERROR(
      CheckContributions(contributions, call->size(), call->position(), mine, whole));
  HEDDLE_ASSIGN_OR_RETURN(const FoldPlan plan, MakeFoldPlan(contributions));
  return ReduceScatterByTree(*call, plan, mine, output, segments, dtype);
}

// A record of a rate and a latency for each rank, as doubles.
void PutLink(ByteWriter& writer, const Link& link) {
  writer.Put(link.latency_seconds);
  writer.Put(link.bytes_per_second);
  writer.PutString(link.transport);
  writer.Put(link.crowding);
}

Result<Link> TakeLink(ByteReader& reader) {
  Link link;
  HEDDLE_ASSIGN_OR_RETURN(link.latency_seconds, reader.Get<double>());
  HEDDLE_ASSIGN_OR_RETURN(link.bytes_per_second, reader.Get<double>());
  HEDDLE_ASSIGN_OR_RETURN(link.transport, reader.GetString());
  HEDDLE_ASSIGN_OR_RETURN(link.crowding, reader.Get<double>());
  return link;
}

Status CheckLink(const Link& link) {
  if (!std::isfinite(link.latency_seconds) || link.latency_seconds < 0 ||
      !std::isfinite(link.bytes_per_second) || link.bytes_per_second <= 0 ||
      !std::isfinite(link.crowding) || link.crowding < 1) {
    return InvalidArgumentError("a link of {} s, {} bytes/s and {} workers a core",
                                link.latency_seconds, link.bytes_per_second, link.crowding);
  }
  return Status::Ok();
}

double CommunicatorImpl::Crowding() const {
  return std::max(1.0, static_cast<double>(group_->segments().members_here()) / Cores());
}

Status CommunicatorImpl::ShareLinks(std::span<const Link> own, const CollectiveOptions& options) {
  if (own.size() != static_cast<size_t>(size()) || !options.group.empty()) {
    return InvalidArgumentError("{} links of one of {} workers", own.size(), size());
  }
  ByteWriter writer;
  for (Link link : own) {
    link.crowding = Crowding();
    PutLink(writer, link);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Bytes> records,
                          AllGatherBytes(writer.bytes(), options));
  auto links = std::make_shared<LinkTable>(size());
  for (int from = 0; from < size(); ++from) {
    ByteReader reader(records[static_cast<size_t>(from)]);
    for (int to = 0; to < size(); ++to) {
      HEDDLE_ASSIGN_OR_RETURN(links->At(from, to), TakeLink(reader));
      if (from != to) {
        HEDDLE_RETURN_IF_ERROR(CheckLink(links->At(from, to))
                                   .WithContext("{} to {}", member_name(from), member_name(to)));
      }
    }
  }
  topologies_.SetLinks(std::move(links));
  return Status::Ok();
}

Status CommunicatorImpl::ShareLinkEnd(const LinkEnd& own,
                                      const MeasuredLinks& measured,
                                      const TransportPreference& preference,
                                      const CollectiveOptions& options) {
  if (!options.group.empty()) {
    return InvalidArgumentError("links are shared by all members of the generation");
  }
  ByteWriter writer;
  Link link = own.link;
  link.crowding = Crowding();
  PutLink(writer, link);
  writer.PutString(own.host);
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Bytes> records,
                          AllGatherBytes(writer.bytes(), options));
  std::vector<LinkEnd> ends(records.size());
  for (size_t rank = 0; rank < records.size(); ++rank) {
    ByteReader reader(records[rank]);
    HEDDLE_ASSIGN_OR_RETURN(ends[rank].link, TakeLink(reader));
    HEDDLE_ASSIGN_OR_RETURN(ends[rank].host, reader.GetString());
    HEDDLE_RETURN_IF_ERROR(
        CheckLink(ends[rank].link).WithContext("{}", member_name(static_cast<int>(rank))));
  }
  topologies_.SetLinks(std::make_shared<LinkTable>(LinksBetween(ends, measured, preference)));
  return Status::Ok();
}

}  // namespace

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Group> group) {
  return std::make_unique<CommunicatorImpl>(std::move(group));
}

}  // namespace heddle::comm
