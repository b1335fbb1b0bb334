// The endpoint: listens for handshakes, forms groups, fences generations.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <set>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/communicator.h"
#include "comm/communicator_impl.h"
#include "comm/cost/transport_names.h"
#include "comm/event_loop.h"
#include "comm/group.h"
#include "comm/measure.h"
#include "comm/rails.h"
#include "comm/session.h"
#include "comm/shared_memory.h"
#include "comm/token_bucket.h"
#include "comm/transport.h"

namespace heddle::comm {

namespace {

/// Handshakes that have not proved anything yet; beyond it the oldest gives way.
constexpr size_t kHalfOpenLimit = 256;
/// Authentic diallers of generations that this worker has not come to yet.
constexpr size_t kHeldLimit = 4096;
/// A sender that was late sends what its link owes in one go; the receiver's link, which was idle
/// meanwhile, must not take that for a faster link.
constexpr Duration kIncomingCredit = std::chrono::milliseconds(20);
constexpr Duration kLingerAtEnd = std::chrono::milliseconds(1500);
/// Without descriptors the queue of diallers is looked at as often.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

/// "verbs over mlx5_0/1", or the transport alone.
std::string WayName(const Transport& transport, size_t door) {
  const std::string port = transport.port(door);
  return port.empty() ? std::string(transport.name())
                      : fmt::format("{} over {}", transport.name(), port);
}

class EndpointImpl final : public Endpoint, public AcceptSession::Owner {
 public:
  EndpointImpl(const EndpointOptions& options,
               std::shared_ptr<EventLoop> loop,
               Transports transports)
      : options_(options),
        loop_(std::move(loop)),
        transports_(std::move(transports.made)),
        absent_(std::move(transports.absent)),
        outgoing_(std::make_shared<TokenBucket>()),
        incoming_(std::make_shared<TokenBucket>(kIncomingCredit)),
        open_(std::make_shared<OpenCount>()),
        regions_(std::make_shared<SharedRegions>(options.metrics)) {
    SetIdentity(options.worker, options.job, options.secret);
    SetTls(options.tls);
    allowed_ = options.transports;
    own_["host"] = HostIdentity();
    for (const auto& transport : transports_) {
      own_[std::string(transport->name())] = transport->address();
    }
    SetLinkRate(options.link_bytes_per_second);
    for (const auto& transport : transports_) {
      const std::vector<int> doors = transport->doors();
      for (size_t i = 0; i < doors.size(); ++i) {
        auto door =
            std::make_unique<Door>(Door{.transport = *transport, .number = i, .socket = doors[i]});
        Door* const raw = door.get();
        raw->watch = loop_->Add(raw->socket, EPOLLIN, [this, raw](uint32_t) { AcceptAll(*raw); });
        doors_.push_back(std::move(door));
      }
    }
  }

  ~EndpointImpl() override {
    FenceBelow(INT64_MAX, CancelledError("the endpoint was closed"));
    // Peers read our last words before the sockets go.
    open_->WaitForNone(After(kLingerAtEnd));
    loop_->Stop();
  }

  void SetIdentity(const std::string& /*worker*/,
                   const std::string& job,
                   const std::string& secret) override {
    const MutexLock lock(mutex_);
    identity_.job = Sha256(job);
    identity_.secret = secret;
  }
  Status SetTransports(const std::vector<std::string>& names) override {
    HEDDLE_RETURN_IF_ERROR(CheckTransportNames(names));
    const MutexLock lock(mutex_);
    allowed_ = names;
    return Status::Ok();
  }
  void SetTls(bool tls) override;
  std::string address() const override { return FormatAddress(own_); }
  Result<std::unique_ptr<Communicator>> Connect(const GroupOptions& options,
                                                Deadline deadline) override;
  void Fence(int64_t generation) override {
    FenceBelow(generation, AbortedError("generation {} has begun", generation));
  }
  void SetLinkRate(double bytes_per_second) override {
    outgoing_->SetRate(bytes_per_second, Now());
    incoming_->SetRate(bytes_per_second, Now());
  }
  Result<SharedBuffer> AllocateShared(size_t bytes) override { return regions_->Allocate(bytes); }
  Result<Link> MeasureLink(Communicator& group,
                           int peer,
                           uint64_t tag,
                           Deadline deadline) override {
    return MeasurePair(group, peer, tag, deadline);
  }

 private:
  using Session = std::shared_ptr<AcceptSession>;
  /// Where one transport's handshakes come in.
  struct Door {
    const Transport& transport;
    const size_t number;
    const int socket;
    uint64_t watch = 0;  ///< The loop's.
  };
  struct Attempt {
    const Transport* transport = nullptr;
    Way way;
  };
  /// Over transports that may join a peer and reach it, best first; never none.
  using Attempts = std::vector<Attempt>;

  Identity identity() const override {
    const MutexLock lock(mutex_);
    return identity_;
  }
  void OnAuthentic(const Session& session) override;
  void OnConnection(const Session& session, std::unique_ptr<Connection> connection) override;
  void OnRefused(const Session& session, VerdictCode reason) override;
  void OnGone(const Session& session, const Status& reason) override;

  void AcceptAll(const Door& door);
  void PauseAccepting(const Door& door, int error);
  void Forget(const Session& session) {
    half_open_.remove(session);
    held_.erase(session);
  }
  void FenceBelow(int64_t generation, const Status& reason) HEDDLE_EXCLUDES(mutex_);
  void ReviewHeld();
  std::shared_ptr<Group> FindGroup(int64_t generation) HEDDLE_EXCLUDES(mutex_);
  void Admit(const Session& session, const std::shared_ptr<Group>& group);
  /// Names of the transports that may be used, best first; not all of them are here.
  std::vector<std::string> Allowed() const HEDDLE_EXCLUDES(mutex_);
  /// Which transports the pair of this worker and `peer` prefers.
  TransportChoice ChoiceFor(const Group& group, int peer) const HEDDLE_EXCLUDES(mutex_);
  /// By `choice`, that of the pair. Errors: kInvalidArgument (an address that is none),
  /// kUnavailable (no transport reaches it).
  Result<Attempts> AttemptsTo(const Group& group,
                              int peer,
                              Lane lane,
                              const TransportChoice& choice) const;
  /// Makes the attempts in turn until one leads to a connection; loop thread.
  void Dial(const std::shared_ptr<Group>& group,
            int peer,
            Lane lane,
            const Attempts& attempts,
            Deadline deadline);
  /// Exports what joins the pairs of a group that has formed, and why.
  void ExportPairs(const Group& group) HEDDLE_EXCLUDES(mutex_);
  /// Counts and, once a peer, logs why the first attempt gives way to the second; loop thread.
  void NoteFallback(const Group& group, int peer, const Attempts& attempts, const Status& status);
  ChannelOptions OptionsFor(const Group& group, int peer, Lane lane, const Connection& connection);
  Hello HelloFor(const Group& group, int peer, Lane lane) const;

  const EndpointOptions options_;
  const std::shared_ptr<EventLoop> loop_;
  const std::vector<std::unique_ptr<Transport>> transports_;
  const std::map<std::string, std::string> absent_;  ///< Transports that are not, with the reason.
  const std::shared_ptr<TokenBucket> outgoing_;
  const std::shared_ptr<TokenBucket> incoming_;
  const std::shared_ptr<OpenCount> open_;
  const std::shared_ptr<SharedRegions> regions_;
  AddressParts own_;  ///< Constant after construction.

  mutable Mutex mutex_;
  Identity identity_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::string> allowed_ HEDDLE_GUARDED_BY(mutex_);  ///< Empty: all transports.
  int64_t oldest_ HEDDLE_GUARDED_BY(mutex_) = 0;                ///< Generations below are refused.
  std::map<int64_t, std::weak_ptr<Group>> groups_ HEDDLE_GUARDED_BY(mutex_);
  /// Pairs of the newest group, by transport and reason.
  std::map<std::pair<std::string, std::string>, int> pairs_ HEDDLE_GUARDED_BY(mutex_);

  // Loop thread only.
  std::vector<std::unique_ptr<Door>> doors_;
  bool descriptors_missed_ = false;  ///< Has been logged.
  std::list<Session> half_open_;
  std::set<Session> held_;
  std::set<std::pair<std::string, std::string>> fallbacks_told_;  ///< Peer and transport or port.
};

// The queue stays readable: to be called again at once would keep the loop busy with nothing.
void EndpointImpl::PauseAccepting(const Door& door, int error) {
  if (!std::exchange(descriptors_missed_, true)) {
    LogWarning("no connection can be accepted: {}; raise `ulimit -n` or free memory",
               ErrnoError(error, "accept").message());
  }
  loop_->Modify(door.watch, door.socket, 0);
  loop_->RunAt(After(kAcceptPause),
               [this, &door] { loop_->Modify(door.watch, door.socket, EPOLLIN); });
}

void EndpointImpl::SetTls(bool tls) {
  {
    const MutexLock lock(mutex_);
    identity_.tls = tls;
  }
  static std::atomic<bool> told = false;
  for (const auto& transport : transports_) {
    if (tls && !transport->CanEncrypt() && !told.exchange(true)) {
      LogInfo("{} is not used: comm.tls is on, and it is not encrypted", transport->name());
    }
  }
}

void EndpointImpl::AcceptAll(const Door& door) {
  for (size_t i = 0; i < kHalfOpenLimit; ++i) {
    UniqueFd socket(::accept4(door.socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        // No descriptors: whoever proved nothing yet gives way, and the queue is asked again later.
        if (!half_open_.empty()) {
          half_open_.front()->Refuse(VerdictCode::kOverload);
        } else {
          PauseAccepting(door, error);
        }
      }
      return;
    }
    if (half_open_.size() >= kHalfOpenLimit) {
      half_open_.front()->Refuse(VerdictCode::kOverload);
    }
    auto session = std::make_shared<AcceptSession>(*loop_, *this, door.transport, door.number,
                                                   std::move(socket));
    half_open_.push_back(session);
    session->Start();
  }
}

std::shared_ptr<Group> EndpointImpl::FindGroup(int64_t generation) {
  const MutexLock lock(mutex_);
  const auto found = groups_.find(generation);
  return found == groups_.end() ? nullptr : found->second.lock();
}

void EndpointImpl::OnAuthentic(const Session& session) {
  half_open_.remove(session);
  const int64_t generation = session->hello().generation;
  {
    const MutexLock lock(mutex_);
    if (generation < oldest_) {
      session->Refuse(VerdictCode::kStaleGeneration);
      return;
    }
  }
  const auto group = FindGroup(generation);
  if (group != nullptr && !group->ended()) {
    Admit(session, group);
  } else if (held_.size() < kHeldLimit) {
    held_.insert(session);  // Its worker is a little ahead of us.
  } else {
    session->Refuse(VerdictCode::kOverload);
  }
}

void EndpointImpl::Admit(const Session& session, const std::shared_ptr<Group>& group) {
  const Hello& hello = session->hello();
  const GroupOptions& options = group->options();
  const auto name = [&](int rank) {
    return Sha256(options.members[static_cast<size_t>(rank)].name);
  };
  if (hello.target != options.rank || !group->IsPeer(hello.source) ||
      hello.source >= options.rank || hello.lane >= kLanes ||
      !SameDigest(hello.source_name, name(hello.source)) ||
      !SameDigest(hello.target_name, name(hello.target))) {
    session->Refuse(VerdictCode::kWrongPeer);
  } else if (const Identity& own = session->identity(); session->peer_uses_tls() != own.tls) {
    session->Refuse(VerdictCode::kWrongTls);
    // It is who we wait for, and will not come in another way.
    const std::string& peer = options.members[static_cast<size_t>(hello.source)].name;
    group->FailForming(UnauthenticatedError("refused {}: {}", peer, TlsMismatch(own.tls)));
  } else if (own.tls && !session->transport().CanEncrypt()) {
    session->Refuse(VerdictCode::kWrongTls);
  } else if (group->IsAttached(hello.source, static_cast<Lane>(hello.lane))) {
    session->Refuse(VerdictCode::kDuplicate);
  } else {
    session->Welcome();
  }
}

void EndpointImpl::OnConnection(const Session& session, std::unique_ptr<Connection> connection) {
  Forget(session);
  const Hello& hello = session->hello();
  const auto group = FindGroup(hello.generation);
  if (group != nullptr && !group->ended()) {
    auto options = OptionsFor(*group, hello.source, static_cast<Lane>(hello.lane), *connection);
    group->Attach(std::move(connection), std::move(options));
  }
}

void EndpointImpl::OnGone(const Session& session, const Status& reason) {
  Forget(session);
  const Hello& hello = session->hello();
  const auto group = FindGroup(hello.generation);
  if (reason.code() == StatusCode::kCancelled || group == nullptr || group->ended()) {
    return;
  }
  // The dialler counts it and goes on to its next attempt, or says that it has none.
  const std::string& name = group->options().members[static_cast<size_t>(hello.source)].name;
  const std::string way = WayName(session->transport(), session->door());
  if (fallbacks_told_.emplace(name, way).second) {
    LogWarning("{} came to nothing with {}: {}", way, name, reason.message());
  }
}

void EndpointImpl::OnRefused(const Session& session, VerdictCode reason) {
  Forget(session);
  options_.metrics
      ->GetCounter("heddle_comm_refused_connections_total", "Connections refused in the handshake.",
                   {{"reason", std::string(VerdictName(reason))}})
      .Add();
}

void EndpointImpl::ReviewHeld() {
  const std::set<Session> held = std::move(held_);
  held_.clear();
  for (const Session& session : held) {
    OnAuthentic(session);
  }
}

ChannelOptions EndpointImpl::OptionsFor(const Group& group,
                                        int peer,
                                        Lane lane,
                                        const Connection& connection) {
  const std::string& name = group.options().members[static_cast<size_t>(peer)].name;
  const std::string kind(connection.transport());
  const metrics::Labels labels{{"transport", kind}, {"peer", name}};
  ChannelOptions options;
  options.peer = peer;
  options.lane = lane;
  options.peer_name = name;
  options.generation = group.options().generation;
  options.operation_timeout = group.options().operation_timeout;
  // On a machine of one core the network stands still while somebody looks for its messages.
  options.may_spin = group.members_here() <= Cores() && Cores() > 1;
  options.outgoing = outgoing_;
  options.incoming = incoming_;
  options.sent_bytes = &options_.metrics->GetCounter("heddle_comm_sent_bytes_total",
                                                     "Bytes sent to a peer.", labels);
  options.placed_bytes = &options_.metrics->GetCounter(
      "heddle_comm_placed_bytes_total", "Bytes sent from a shared buffer straight into a peer's.",
      {{"transport", kind}});
  options.received_bytes = &options_.metrics->GetCounter("heddle_comm_received_bytes_total",
                                                         "Bytes received from a peer.", labels);
  options.lost =
      &options_.metrics->GetCounter("heddle_comm_peer_lost_total", "Peers whose connection broke.");
  options.open = open_;
  if (const std::string port = connection.port(); !port.empty()) {
    options_.metrics
        ->GetCounter("heddle_comm_rail_connections_total",
                     "Connections, two a pair, over each of this machine's RDMA ports.",
                     {{"port", port}})
        .Add();
  }
  return options;
}

Hello EndpointImpl::HelloFor(const Group& group, int peer, Lane lane) const {
  const GroupOptions& options = group.options();
  Hello hello;
  hello.lane = static_cast<uint32_t>(lane);
  hello.generation = options.generation;
  hello.source = options.rank;
  hello.target = peer;
  hello.job = identity().job;
  hello.source_name = Sha256(options.members[static_cast<size_t>(options.rank)].name);
  hello.target_name = Sha256(options.members[static_cast<size_t>(peer)].name);
  hello.nonce = MakeNonce();
  return hello;
}

std::vector<std::string> EndpointImpl::Allowed() const {
  const MutexLock lock(mutex_);
  if (!allowed_.empty()) {
    return allowed_;
  }
  const auto all = TransportNames();
  return {all.begin(), all.end()};
}

TransportChoice EndpointImpl::ChoiceFor(const Group& group, int peer) const {
  const GroupMember& member = group.options().members[static_cast<size_t>(peer)];
  const std::vector<std::string>& list = group.options().transports;
  return ChooseTransport({.list = list.empty() ? Allowed() : list}, member.transports);
}

Result<EndpointImpl::Attempts> EndpointImpl::AttemptsTo(const Group& group,
                                                        int peer,
                                                        Lane lane,
                                                        const TransportChoice& choice) const {
  const size_t number = ConnectionNumber(group.options().rank, peer, lane == Lane::kUrgent);
  const GroupMember& member = group.options().members[static_cast<size_t>(peer)];
  Attempts attempts;
  HEDDLE_ASSIGN_OR_RETURN(const AddressParts address, ParseAddress(member.address));
  std::vector<std::string> objections;
  const bool tls = identity().tls;
  for (const std::string& name : choice.order) {
    const auto transport = std::find_if(transports_.begin(), transports_.end(),
                                        [&](const auto& other) { return other->name() == name; });
    if (transport == transports_.end()) {
      objections.push_back(fmt::format("{} ({})", name, absent_.at(name)));
    } else if (tls && !(*transport)->CanEncrypt()) {
      objections.push_back(fmt::format("{} (not encrypted, and comm.tls is on)", name));
    } else if (const auto ways = (*transport)->WaysTo(own_, address, number); ways.empty()) {
      objections.push_back(fmt::format("{} (cannot reach it)", name));
    } else {
      for (const Way& way : ways) {
        attempts.push_back({.transport = transport->get(), .way = way});
      }
    }
  }
  if (attempts.empty()) {
    return UnavailableError("no transport leads there: {}", fmt::join(objections, ", "));
  }
  // What has joined them before gets what is left of the time when nothing else does now: the
  // others may be ways that never lead there, and the first attempt may not take so long.
  const Attempt first = attempts.front();
  if (choice.cheapest && first.transport->name() == choice.transport &&
      attempts.back().transport != first.transport) {
    attempts.push_back(first);
  }
  return attempts;
}

void EndpointImpl::Dial(const std::shared_ptr<Group>& group,
                        int peer,
                        Lane lane,
                        const Attempts& attempts,
                        Deadline deadline) {
  const auto session = std::make_shared<DialSession>(
      *loop_, *attempts.front().transport, attempts.front().way, identity(),
      HelloFor(*group, peer, lane), deadline,
      [this, weak = std::weak_ptr(group), peer, lane, attempts,
       deadline](Result<std::unique_ptr<Connection>> result) {
        const auto alive = weak.lock();
        if (alive == nullptr || alive->ended()) {
          return;
        }
        if (result.ok()) {
          auto options = OptionsFor(*alive, peer, lane, **result);
          alive->Attach(*std::move(result), std::move(options));
        } else if (attempts.size() > 1 && result.status().code() != StatusCode::kAborted &&
                   result.status().code() != StatusCode::kUnauthenticated) {
          NoteFallback(*alive, peer, attempts, result.status());
          Dial(alive, peer, lane, {attempts.begin() + 1, attempts.end()}, deadline);
        } else {
          const std::string& name = alive->options().members[static_cast<size_t>(peer)].name;
          alive->FailForming(result.status().WithContext("connecting to {}", name));
        }
      });
  // A port that nobody answers for must leave time for the next way; a busy process' port answers.
  const bool last = attempts.size() == 1;
  const Duration patience = group->options().way_timeout;
  session->Start(last ? deadline : After(patience), last ? kHandshakeTimeout : patience);
}

void EndpointImpl::NoteFallback(const Group& group,
                                int peer,
                                const Attempts& attempts,
                                const Status& status) {
  const Transport& transport = *attempts[0].transport;
  const Way& way = attempts[0].way;
  transport.Avoid(way);
  const bool next_rail = attempts[1].transport == &transport;
  const std::string reason(StatusCodeName(status.code()));
  metrics::Counter& counter =
      next_rail
          ? options_.metrics->GetCounter(
                "heddle_comm_rail_fallbacks_total",
                "Connections that could not use this RDMA port and tried another pair of ports.",
                {{"port", transport.port(way.door)}, {"reason", reason}})
          : options_.metrics->GetCounter(
                "heddle_comm_fallbacks_total",
                "Connections, two a pair, that could not use their best transport and "
                "took the next.",
                {{"transport", std::string(transport.name())}, {"reason", reason}});
  counter.Add();
  // Every generation would say the same again.
  const std::string& name = group.options().members[static_cast<size_t>(peer)].name;
  const std::string what = next_rail ? WayName(transport, way.door) : std::string(transport.name());
  if (fallbacks_told_.emplace(name, what).second) {
    LogWarning("{} is not used with {}: {}", what, name, status.message());
  }
}

void EndpointImpl::ExportPairs(const Group& group) {
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (const int peer : group.options().peers) {
    const std::string transport = group.transport(peer);
    const TransportChoice choice = ChoiceFor(group, peer);
    const Result<Attempts> attempts = AttemptsTo(group, peer, Lane::kUrgent, choice);
    const bool expected = attempts.ok() && attempts->front().transport->name() == transport;
    const bool cheapest = choice.cheapest && choice.transport == transport;
    const bool first = !choice.cheapest && expected;
    ++pairs[{transport, cheapest ? "cheapest" : first ? "first" : "fallback"}];
  }
  const MutexLock lock(mutex_);
  for (auto& [labels, count] : pairs_) {
    count = 0;
  }
  for (const auto& [labels, count] : pairs) {
    pairs_[labels] = count;
  }
  for (const auto& [labels, count] : pairs_) {
    options_.metrics
        ->GetGauge("heddle_comm_pair_transport",
                   "Pairs of this worker in the newest group, by the transport that joins them.",
                   {{"transport", labels.first}, {"reason", labels.second}})
        .Set(count);
  }
}

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
      for (const Lane lane : kEachLane) {
        const Result<Attempts> attempts = AttemptsTo(*group, peer, lane, ChoiceFor(*group, peer));
        if (!attempts.ok()) {
          const std::string& name = group->options().members[static_cast<size_t>(peer)].name;
          group->FailForming(attempts.status().WithContext("connecting to {}", name));
          break;
        }
        if (dials) {
          Dial(group, peer, lane, *attempts, deadline);
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

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::Create(const EndpointOptions& options) {
  HEDDLE_CHECK(options.metrics != nullptr, "an endpoint needs a metrics registry");
  if (options.link_bytes_per_second < 0) {
    return InvalidArgumentError("a link rate of {} bytes a second", options.link_bytes_per_second);
  }
  HEDDLE_RETURN_IF_ERROR(CheckTransportNames(options.transports));
  HEDDLE_ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
  HEDDLE_ASSIGN_OR_RETURN(auto transports, MakeTransports(options));
  return std::unique_ptr<Endpoint>(
      std::make_unique<EndpointImpl>(options, std::move(loop), std::move(transports)));
}

}  // namespace heddle::comm
