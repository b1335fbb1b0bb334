/// \file
/// The Endpoint as a class: endpoint.cc makes it and forms and fences groups, endpoint_accept.cc
/// lets others' connections in, endpoint_dial.cc chooses transports and dials.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/endpoint/measure.h"
#include "comm/endpoint/session.h"
#include "comm/group/group.h"
#include "comm/stream/event_loop.h"
#include "comm/stream/token_bucket.h"
#include "comm/transport/registry.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// "TRANSPORT over PORT", or the transport alone. `listener`: of the transport.
std::string RouteName(const Transport& transport, size_t listener);

class EndpointImpl final : public Endpoint, public AcceptSession::Owner {
 public:
  EndpointImpl(const EndpointOptions& options,
               std::shared_ptr<EventLoop> loop,
               Transports transports);
  ~EndpointImpl() override;

  Status Configure(const EndpointConfig& config) override;
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
  struct Listening {
    const Transport& transport;
    const size_t number;  ///< Among the transport's listeners.
    const int socket;
    uint64_t watch = 0;  ///< The loop's.
  };
  struct Attempt {
    const Transport* transport = nullptr;
    Route route;
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

  void AcceptAll(const Listening& listening);
  void PauseAccepting(const Listening& listening, int error);
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
                              TrafficClass traffic_class,
                              const TransportChoice& choice) const;
  /// Makes the attempts in turn until one leads to a connection; loop thread.
  void Dial(const std::shared_ptr<Group>& group,
            int peer,
            TrafficClass traffic_class,
            const Attempts& attempts,
            Deadline deadline);
  /// Exports what joins the pairs of a group that has formed, and why.
  void ExportPairs(const Group& group) HEDDLE_EXCLUDES(mutex_);
  /// Counts and, once a peer, logs why the second attempt follows the first; loop thread.
  void NoteFallback(const Group& group, int peer, const Attempts& attempts, const Status& status);
  ChannelOptions OptionsFor(const Group& group,
                            int peer,
                            TrafficClass traffic_class,
                            Connection& connection);
  Hello HelloFor(const Group& group, int peer, TrafficClass traffic_class) const;

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
  std::vector<std::unique_ptr<Listening>> listening_;
  bool descriptors_missed_ = false;  ///< Has been logged.
  std::list<Session> half_open_;
  std::set<Session> held_;
  std::set<std::pair<std::string, std::string>> fallbacks_logged_;  ///< Peer and transport or port.
};

}  // namespace heddle::comm
