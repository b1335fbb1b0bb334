// The endpoint: its creation, the forming of groups and the fencing of generations.
#include <set>
#include <utility>

#include "base/check.h"
#include "comm/endpoint/acceptor.h"
#include "comm/endpoint/channel_factory.h"
#include "comm/endpoint/communicator_impl.h"
#include "comm/endpoint/device_trial.h"
#include "comm/endpoint/dialer.h"
#include "comm/endpoint/generations.h"
#include "comm/endpoint/local_end.h"
#include "comm/endpoint/measure.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

namespace {

constexpr Duration kLingerAtEnd = std::chrono::milliseconds(1500);

Status CheckGroup(const GroupOptions& options) {
  const auto size = static_cast<int>(options.members.size());
  if (options.rank < 0 || options.rank >= size) {
    return InvalidArgumentError("rank {} in a group of {}", options.rank, size);
  }
  if (options.generation < 0) {
    return InvalidArgumentError("generation {}", options.generation);
  }
  if (options.links != nullptr && options.links->size() != size) {
    return InvalidArgumentError("links of {} workers for a group of {}", options.links->size(),
                                size);
  }
  HEDDLE_RETURN_IF_ERROR(CheckTransportNames(options.transports));
  for (const int peer : options.peers) {
    if (peer < 0 || peer >= size || peer == options.rank) {
      return InvalidArgumentError("rank {} lists peer {} in a group of {}", options.rank, peer,
                                  size);
    }
  }
  return Status::Ok();
}

GroupOptions WithTreeNeighbours(GroupOptions options) {
  const auto size = static_cast<int>(options.members.size());
  std::set<int> peers(options.peers.begin(), options.peers.end());
  if (options.rank > 0) {
    peers.insert((options.rank - 1) / 2);
  }
  for (const int child : {2 * options.rank + 1, 2 * options.rank + 2}) {
    if (child < size) {
      peers.insert(child);
    }
  }
  options.peers.assign(peers.begin(), peers.end());
  return options;
}

class EndpointImpl final : public Endpoint {
 public:
  EndpointImpl(const EndpointOptions& options,
               std::shared_ptr<EventLoop> loop,
               Transports transports)
      : loop_(std::move(loop)),
        regions_(std::make_shared<SharedRegions>(options.metrics)),
        channels_(*options.metrics),
        self_(std::move(transports), options.config),
        acceptor_(*loop_, self_, generations_, channels_, *options.metrics),
        dialer_(*loop_, self_, channels_, *options.metrics) {
    for (const auto& transport : self_.transports()) {
      channels_.Begin(*transport);
    }
    SetLinkRate(options.link_bytes_per_second);
  }
  ~EndpointImpl() override;

  Status Configure(const EndpointConfig& config) override { return self_.Configure(config); }
  std::string address() const override { return FormatAddress(self_.address()); }
  Result<std::unique_ptr<Communicator>> Connect(const GroupOptions& options,
                                                Deadline deadline) override;
  void Fence(int64_t generation) override {
    FenceBelow(generation, AbortedError("generation {} has begun", generation));
  }
  AwaitedMembers Awaited() const override;
  void SetLinkRate(double bytes_per_second) override { channels_.SetLinkRate(bytes_per_second); }
  Result<SharedBuffer> AllocateShared(size_t bytes) override { return regions_->Allocate(bytes); }
  Result<SharedBuffer> ImportDeviceMemory(const DeviceMemory& memory) override {
    return regions_->Import(memory);
  }
  Status TryDeviceMemory(Communicator& group,
                         int peer,
                         uint64_t tag,
                         const DeviceTrial& trial,
                         Deadline deadline) override {
    return TryPair(group, peer, tag, trial, deadline);
  }
  Result<Link> MeasureLink(Communicator& group,
                           int peer,
                           uint64_t tag,
                           Deadline deadline) override {
    return MeasurePair(group, peer, tag, deadline);
  }

 private:
  void FenceBelow(int64_t generation, const Status& reason);

  const std::shared_ptr<EventLoop> loop_;  ///< Stopped before the rest goes.
  const std::shared_ptr<SharedRegions> regions_;
  ChannelFactory channels_;
  Generations generations_;
  LocalEnd self_;
  Acceptor acceptor_;
  Dialer dialer_;
};

EndpointImpl::~EndpointImpl() {
  FenceBelow(INT64_MAX, CancelledError("the endpoint was closed"));
  // Peers read our last words before the sockets go.
  channels_.WaitForNone(After(kLingerAtEnd));
  loop_->Stop();
}

Result<std::unique_ptr<Communicator>> EndpointImpl::Connect(const GroupOptions& options,
                                                            Deadline deadline) {
  HEDDLE_RETURN_IF_ERROR(CheckGroup(options));
  if (self_.identity().secret.empty()) {
    return FailedPreconditionError("an endpoint without a secret connects to nobody");
  }
  const auto group = std::make_shared<Group>(loop_, WithTreeNeighbours(options), regions_);
  HEDDLE_RETURN_IF_ERROR(generations_.Begin(group));
  loop_->Post([this, group, deadline] {
    dialer_.DialPeers(group, deadline);
    acceptor_.ReviewHeld();
  });
  const Status formed = group->WaitFormed(deadline);
  if (!formed.ok()) {
    group->Abort(formed);
    return formed;
  }
  dialer_.ExportPairs(*group);
  return MakeCommunicator(group);
}

AwaitedMembers EndpointImpl::Awaited() const {
  for (const auto& group : generations_.Newest()) {
    AwaitedMembers awaited{.generation = group->options().generation};
    for (const int rank : group->awaited().Ranks()) {
      if (rank != group->options().rank) {  // A wait for its own emulated link.
        awaited.names.push_back(group->options().members[static_cast<size_t>(rank)].name);
      }
    }
    if (!awaited.names.empty()) {
      return awaited;
    }
  }
  return {};
}

void EndpointImpl::FenceBelow(int64_t generation, const Status& reason) {
  for (const auto& group : generations_.FenceBelow(generation)) {
    group->Abort(reason);
  }
  loop_->Post([this] { acceptor_.ReviewHeld(); });
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::Create(const EndpointOptions& options) {
  HEDDLE_CHECK(options.metrics != nullptr, "an endpoint needs a metrics registry");
  if (options.link_bytes_per_second < 0) {
    return InvalidArgumentError("a link rate of {} bytes a second", options.link_bytes_per_second);
  }
  HEDDLE_RETURN_IF_ERROR(CheckTransportNames(options.config.transports));
  HEDDLE_ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
  HEDDLE_ASSIGN_OR_RETURN(auto transports, OpenTransports(options));
  return std::unique_ptr<Endpoint>(
      std::make_unique<EndpointImpl>(options, std::move(loop), std::move(transports)));
}

}  // namespace heddle::comm
