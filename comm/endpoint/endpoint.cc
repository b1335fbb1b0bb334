// The endpoint: made, forms groups, fences generations.
#include <algorithm>
#include <set>
#include <utility>

#include <sys/epoll.h>

#include "base/check.h"
#include "comm/endpoint/communicator_impl.h"
#include "comm/endpoint/endpoint_impl.h"

namespace heddle::comm {

namespace {

/// A sender that was late sends what its link owes in one go; the receiver's link, which was idle
/// meanwhile, must not take that for a faster link.
constexpr Duration kIncomingCredit = std::chrono::milliseconds(20);
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

}  // namespace

EndpointImpl::EndpointImpl(const EndpointOptions& options,
                           std::shared_ptr<EventLoop> loop,
                           Transports transports)
    : options_(options),
      loop_(std::move(loop)),
      transports_(std::move(transports.open)),
      absent_(std::move(transports.absent)),
      outgoing_(std::make_shared<TokenBucket>()),
      incoming_(std::make_shared<TokenBucket>(kIncomingCredit)),
      open_(std::make_shared<OpenCount>()),
      regions_(std::make_shared<SharedRegions>(options.metrics)) {
  const Status configured = Configure(options.config);
  HEDDLE_CHECK(configured.ok(), "Create has checked the names: {}", configured.message());
  own_["host"] = HostIdentity();
  for (const auto& transport : transports_) {
    own_[transport->name()] = transport->address();
  }
  SetLinkRate(options.link_bytes_per_second);
  for (const auto& transport : transports_) {
    const std::vector<Listener> listeners = transport->listeners();
    for (size_t i = 0; i < listeners.size(); ++i) {
      listening_.push_back(std::make_unique<Listening>(
          Listening{.transport = *transport, .number = i, .socket = listeners[i].socket}));
      Listening* const raw = listening_.back().get();
      raw->watch = loop_->Add(raw->socket, EPOLLIN, [this, raw](uint32_t) { AcceptAll(*raw); });
    }
  }
}

EndpointImpl::~EndpointImpl() {
  FenceBelow(INT64_MAX, CancelledError("the endpoint was closed"));
  // Peers read our last words before the sockets go.
  open_->WaitForNone(After(kLingerAtEnd));
  loop_->Stop();
}

Result<std::unique_ptr<Communicator>> EndpointImpl::Connect(const GroupOptions& options,
                                                            Deadline deadline) {
  HEDDLE_RETURN_IF_ERROR(CheckGroup(options));
  const auto group = std::make_shared<Group>(loop_, WithTreeNeighbours(options), regions_);
  {
    const MutexLock lock(mutex_);
    if (identity_.secret.empty()) {
      return FailedPreconditionError("an endpoint without a secret connects to nobody");
    }
    if (options.generation < oldest_) {
      return AbortedError("generation {} is stale: {} has begun", options.generation, oldest_);
    }
    std::weak_ptr<Group>& place = groups_[options.generation];
    if (const auto other = place.lock(); other != nullptr && !other->ended()) {
      return FailedPreconditionError("generation {} is connected already", options.generation);
    }
    oldest_ = options.generation;
    place = group;
    std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
  }
  loop_->Post([this, group, deadline] {
    for (const int peer : group->options().peers) {
      const bool dials = peer > group->options().rank;  // The lower rank does.
      if (!dials && group->options().transports.empty()) {
        continue;  // It may reach us though we do not reach it.
      }
      for (const TrafficClass traffic_class : kEachTrafficClass) {
        const Result<Attempts> attempts =
            AttemptsTo(*group, peer, traffic_class, ChoiceFor(*group, peer));
        if (!attempts.ok()) {
          const std::string& name = group->options().members[static_cast<size_t>(peer)].name;
          group->FailForming(attempts.status().WithContext("connecting to {}", name));
          break;
        }
        if (dials) {
          Dial(group, peer, traffic_class, *attempts, deadline);
        }
      }
    }
    ReviewHeld();
  });
  const Status formed = group->WaitFormed(deadline);
  if (!formed.ok()) {
    group->Abort(formed);
    return formed;
  }
  ExportPairs(*group);
  return MakeCommunicator(group);
}

void EndpointImpl::FenceBelow(int64_t generation, const Status& reason) {
  std::vector<std::shared_ptr<Group>> stale;
  {
    const MutexLock lock(mutex_);
    oldest_ = std::max(oldest_, generation);
    for (const auto& [number, weak] : groups_) {
      if (auto group = weak.lock(); group != nullptr && number < generation) {
        stale.push_back(std::move(group));
      }
    }
  }
  for (const auto& group : stale) {
    group->Abort(reason);
  }
  loop_->Post([this] { ReviewHeld(); });
}

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
