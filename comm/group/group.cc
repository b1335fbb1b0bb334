#include "comm/group/group.h"

#include <algorithm>
#include <utility>

namespace heddle::comm {

Group::Group(std::shared_ptr<EventLoop> loop,
             GroupOptions options,
             std::shared_ptr<SharedRegions> regions)
    : loop_(std::move(loop)),
      options_(std::move(options)),
      is_peer_(options_.members.size()),
      regions_(std::move(regions)),
      segments_(*this, regions_),
      waits_(options_.diagnose_calls ? std::make_unique<CallDiagnosis>(*this)
                                     : std::make_unique<CallWaits>()),
      calls_(size()),
      losses_(std::make_shared<PeerLosses>(loop_)),
      awaited_(std::make_shared<AwaitedPeers>(options_.members.size())) {
  const MutexLock lock(mutex_);
  pairs_.resize(options_.members.size());
  for (const int peer : options_.peers) {
    is_peer_[static_cast<size_t>(peer)] = true;
    pairs_[static_cast<size_t>(peer)].frames = std::make_shared<FrameCounts>();
    awaited_->Begin(peer, static_cast<int>(kTrafficClasses));  // Until it is connected.
  }
  missing_ = kTrafficClasses * options_.peers.size();
}

bool Group::IsAttached(int peer, TrafficClass traffic_class) const {
  const MutexLock lock(mutex_);
  return pairs_[static_cast<size_t>(peer)].traffic_classes[IndexOf(traffic_class)] != nullptr;
}

void Group::Attach(std::unique_ptr<Connection> connection, ChannelOptions channel) {
  const int peer = channel.peer;
  const TrafficClass traffic_class = channel.traffic_class;
  channel.on_end = [weak = weak_from_this(), peer, traffic_class](const Status& status, bool lost) {
    const auto self = weak.lock();
    return self == nullptr ? status : self->OnChannelEnd(peer, traffic_class, status, lost);
  };
  const auto& driver = drivers_[IndexOf(traffic_class)];
  channel.driver = driver;
  channel.regions = regions_;
  channel.awaited = awaited_;
  channel.reports = traffic_class == TrafficClass::kUrgent ? waits_->ReportsOf(peer) : nullptr;
  std::shared_ptr<Channel> attached;
  {
    const MutexLock lock(mutex_);
    Pair& pair = pairs_[static_cast<size_t>(peer)];
    auto& place = pair.traffic_classes[IndexOf(traffic_class)];
    if (ended_ || place != nullptr) {
      return;
    }
    channel.frames = pair.frames;
    attached = std::make_shared<Channel>(loop_, std::move(connection), std::move(channel));
    place = attached;
    --missing_;
    awaited_->End(peer);
    changed_.NotifyAll();
  }
  driver->Add(attached);
  attached->Start();
}

void Group::FailForming(const Status& status) {
  const MutexLock lock(mutex_);
  if (!formed_ && forming_failure_.ok()) {
    forming_failure_ = status;
    changed_.NotifyAll();
  }
}

Status Group::WaitFormed(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (missing_ > 0 && forming_failure_.ok() && !ended_ && Now() < deadline) {
    changed_.WaitUntil(mutex_, deadline);
  }
  if (ended_) {
    return end_reason_;
  }
  if (!forming_failure_.ok()) {
    return forming_failure_;
  }
  if (missing_ == 0) {
    formed_ = true;
    return Status::Ok();
  }
  std::string names;
  for (const int peer : options_.peers) {
    const auto& traffic_classes = pairs_[static_cast<size_t>(peer)].traffic_classes;
    if (std::find(traffic_classes.begin(), traffic_classes.end(), nullptr) !=
        traffic_classes.end()) {
      names += (names.empty() ? "" : ", ") + options_.members[static_cast<size_t>(peer)].name;
    }
  }
  return DeadlineExceededError("deadline passed while connecting to {}", names);
}

Status Group::OnChannelEnd(int peer, TrafficClass traffic_class, const Status& status, bool lost) {
  std::shared_ptr<Channel> other;
  {
    const MutexLock lock(mutex_);
    Pair& pair = pairs_[static_cast<size_t>(peer)];
    if (lost && !pair.last_words.ok()) {
      return pair.last_words;
    }
    if (lost) {
      other = pair.traffic_classes[IndexOf(OtherTrafficClass(traffic_class))];
    } else {
      pair.last_words = status;
    }
    // A peer that left in good order was done with the group before we were; that is no failure to
    // form it.
    const bool broke = lost || status.code() == StatusCode::kAborted;
    if (broke && !formed_ && forming_failure_.ok()) {
      forming_failure_ = status;
      changed_.NotifyAll();
    }
    if (status.code() == StatusCode::kAborted && peer_abort_.ok()) {
      peer_abort_ = status;
    }
    if (lost && !ended_) {
      losses_->Add(peer, status);
    }
  }
  losses_->Deliver();
  if (other != nullptr) {
    other->Fail(status);
  }
  segments_.MemberEnded(peer, status, !lost && status.code() == StatusCode::kUnavailable);
  return status;
}

void Group::Leave() {
  Status reason;
  {
    const MutexLock lock(mutex_);
    reason = peer_abort_;
  }
  const bool aborted = !reason.ok();
  End(aborted ? reason : CancelledError("the communicator was closed"), aborted);
}

void Group::End(const Status& reason, bool aborted) {
  std::vector<Pair> pairs;
  {
    const MutexLock lock(mutex_);
    if (ended_) {
      return;
    }
    ended_ = true;
    end_reason_ = reason;
    pairs = pairs_;
    changed_.NotifyAll();
  }
  segments_.End(reason);
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    for (const Pair& pair : pairs) {
      if (const auto& channel = pair.traffic_classes[IndexOf(traffic_class)]; channel != nullptr) {
        channel->Close(reason, aborted);
      }
    }
  }
}

bool Group::ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

Result<std::shared_ptr<Channel>> Group::ChannelOf(int peer, TrafficClass traffic_class) const {
  if (peer < 0 || peer >= size()) {
    return InvalidArgumentError("rank {} in a group of {}", peer, size());
  }
  const MutexLock lock(mutex_);
  const auto& channel = pairs_[static_cast<size_t>(peer)].traffic_classes[IndexOf(traffic_class)];
  if (channel == nullptr) {
    return FailedPreconditionError("{} is not connected to {}",
                                   options_.members[static_cast<size_t>(options_.rank)].name,
                                   options_.members[static_cast<size_t>(peer)].name);
  }
  return channel;
}

namespace {

std::shared_ptr<Work::State> Failed(const Status& status, Duration timeout) {
  auto state = std::make_shared<Work::State>(timeout);
  state->Complete(status);
  return state;
}

}  // namespace

std::shared_ptr<Work::State> Group::Send(int peer,
                                         MessageKey key,
                                         std::span<const std::byte> data,
                                         bool urgent) {
  const auto channel = ChannelOf(peer, TrafficClassOf(urgent));
  return channel.ok() ? (*channel)->Send(key, data)
                      : Failed(channel.status(), options_.operation_timeout);
}

std::shared_ptr<Work::State> Group::Recv(int peer,
                                         MessageKey key,
                                         std::span<std::byte> data,
                                         bool urgent) {
  const auto channel = ChannelOf(peer, TrafficClassOf(urgent));
  return channel.ok() ? (*channel)->Recv(key, data)
                      : Failed(channel.status(), options_.operation_timeout);
}

std::string Group::transport(int peer) const {
  if (peer == options_.rank) {
    return "self";
  }
  const auto channel = ChannelOf(peer, TrafficClass::kBulk);
  return channel.ok() ? (*channel)->transport() : "none";
}

std::vector<int64_t> Group::BytesSent() const {
  std::vector<int64_t> sent(static_cast<size_t>(size()));
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < pairs_.size(); ++i) {
    for (const auto& channel : pairs_[i].traffic_classes) {
      sent[i] += channel == nullptr ? 0 : channel->bytes_sent();
    }
  }
  return sent;
}

}  // namespace heddle::comm
