#include "comm/message/channel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>

#include "comm/message/call_card.h"

namespace heddle::comm {

namespace {
constexpr size_t kStageBytes = size_t{8} << 10;
/// How long a closed channel waits for its peer to read the news.
constexpr Duration kLinger = std::chrono::seconds(1);
/// After a caller drove, the loop leaves the channel alone for a moment, because the next operation
/// often follows at once. Twice this bounds how long a message lies unseen that nobody waits for.
constexpr Duration kLease = std::chrono::microseconds(500);
/// A peer that ends its group in the middle of a placement takes its memory back, which breaks this
/// lane; why it did, the other lane tells a moment later.
constexpr Duration kOtherLaneTells = std::chrono::milliseconds(50);
}  // namespace

void Operation::Cancel(const Status& status) {
  channel_->CancelOperation(*this, status);
}

void Operation::Drive(Deadline deadline, Patience patience) {
  if (channel_->options().driver != nullptr) {
    channel_->options().driver->Drive(*this, patience, deadline);
  }
}

void Operation::SetAsleep(bool asleep) {
  if (channel_->options().driver != nullptr) {
    channel_->options().driver->SetAsleep(asleep);
  }
}

std::string Operation::Describe() const {
  if (IsForming(key.space)) {
    return fmt::format("forming the group in shared memory with {}", channel_->options().peer_name);
  }
  return fmt::format("{} {} bytes {} {} (tag {})", is_send ? "sending" : "receiving", size,
                     is_send ? "to" : "from", channel_->options().peer_name, key.tag);
}

Channel::Channel(std::shared_ptr<EventLoop> loop,
                 std::unique_ptr<Connection> connection,
                 ChannelOptions options)
    : loop_(std::move(loop)),
      options_(std::move(options)),
      info_(connection->info()),
      peer_process_(info_.descriptors == nullptr ? 0 : info_.descriptors->peer_process()),
      generation_(static_cast<uint32_t>(options_.generation)),
      connection_(std::move(connection)),
      stage_(kStageBytes) {
  options_.open->Add(1);
}

Channel::~Channel() {
  Reset();
}

void Channel::Start() {
  const MutexLock lock(mutex_);
  if (phase_ == Phase::kOpen) {
    started_ = true;
    Rearm();
    RunLater(Now());
  }
}

std::shared_ptr<Operation> Channel::Send(MessageKey key, std::span<const std::byte> data) {
  auto operation = std::make_shared<Operation>(options_.operation_timeout, shared_from_this());
  operation->key = key;
  operation->is_send = true;
  operation->source = data.data();
  operation->size = data.size();
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    operation->Complete(failure_);
    return operation;
  }
  messages_.push_back(operation);
  if (!sending_) {  // Otherwise the connection is full and the loop goes on when it has room.
    PumpFromCaller();
  }
  return operation;
}

// Moves what fits at once, in the caller's thread: a small message then needs no hop to the loop.
// What goes wrong here is left to the loop, so that losses are reported from one place.
void Channel::PumpFromCaller() {
  if (!started_ || phase_ != Phase::kOpen || !broken_.ok() || !HasOutput()) {
    return;
  }
  const Status status = Pump();
  if (!status.ok()) {
    broken_ = status;
    RunLater(Now());
    return;
  }
  if (sending_) {  // The connection is full: the loop is to see when it has room.
    leased_until_ = Time();
  }
  Rearm();
}

Channel::Look Channel::DriveOnce(const Work::State& awaited, bool woken, Time now) {
  const MutexLock lock(mutex_);
  const bool in_flight = HasOutput() || !posted_.empty() || !asked_.empty() || !expected_.empty() ||
                         !placing_.empty() || in_operation_ != nullptr || in_early_ != nullptr;
  if (!started_ || phase_ != Phase::kOpen || !broken_.ok() || out_limited_ || in_limited_) {
    return {};
  }
  if (!in_flight) {  // The peer's end is the loop's to notice, however long this drive is.
    if (driven_) {
      Release(true);
    }
    return {};
  }
  const bool watched = !driven_ && leased_until_ == Time();
  driven_ = true;
  leased_until_ = Time();
  if (watched) {
    Rearm();
  }
  if (woken) {
    const Connection::Watch slept_on = connection_->SleepOn(sending_);
    connection_->OnReady(slept_on.fd, slept_on.events);
  }
  const uint64_t moved_before = moved_;
  Status status = Receive(&awaited);
  if (status.ok()) {
    status = Pump();
  }
  if (!status.ok()) {
    broken_ = status;
    RunLater(now);
    return {};
  }
  return {
      .in_use = true, .moved = moved_ != moved_before, .sleep_on = connection_->SleepOn(sending_)};
}

bool Channel::PrepareToSleep() {
  const MutexLock lock(mutex_);
  return phase_ == Phase::kOpen && broken_.ok() && connection_->PrepareToWait(true, sending_);
}

void Channel::EndDrive(bool lease) {
  const MutexLock lock(mutex_);
  if (driven_) {
    Release(lease);
  }
}

void Channel::Release(bool lease) {
  driven_ = false;
  if (!started_ || phase_ == Phase::kClosed) {
    return;
  }
  if (lease && !HasOutput()) {
    leased_until_ = After(kLease);
    if (run_at_ > leased_until_ + kLease) {  // To wake the loop for each would cost more.
      RunLater(leased_until_);
    }
    return;
  }
  // Read, but behind what the driver waited for; or the driver's turn ended between two frames.
  // The loop may have come for them meanwhile and gone again.
  if (stage_begin_ < stage_end_ || (HasOutput() && !sending_)) {
    RunLater(Now());
  }
  Rearm();
}

bool Channel::IsDriven() const {
  return (driven_ || leased_until_ != Time()) && phase_ == Phase::kOpen && broken_.ok() &&
         !in_limited_ && !out_limited_;
}

void Channel::HandleTimer(Time time) {
  {
    const MutexLock lock(mutex_);
    if (run_at_ != time) {  // Another was to come before it, and has seen to all.
      return;
    }
    run_at_ = Time::max();
    if (!driven_ && leased_until_ <= Now()) {
      leased_until_ = Time();
    }
    if (IsDriven()) {
      if (!driven_) {
        RunLater(leased_until_);
      }
      return;
    }
  }
  HandleReady(-1, 0);
}

void Channel::HandleReady(int fd, uint32_t events) {
  Operations ended;
  Status failure;
  bool was_open = false;
  bool lost = false;
  {
    const MutexLock lock(mutex_);
    if (phase_ == Phase::kClosed) {
      return;
    }
    if (fd >= 0) {
      peer_hung_up_ = peer_hung_up_ || (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
      connection_->OnReady(fd, events);
    }
    // A caller's thread may have read already why the peer ended; afterwards there is only an end.
    const bool known =
        broken_.code() == StatusCode::kAborted || broken_.code() == StatusCode::kCancelled;
    Status status = known ? broken_ : Receive();
    if (status.ok()) {
      status = broken_;
    }
    if (status.ok()) {
      status = Pump();
    }
    if (status.ok()) {
      Rearm();
      return;
    }
    lost = status.code() != StatusCode::kAborted && status.code() != StatusCode::kCancelled;
    was_open = phase_ == Phase::kOpen;
    if (was_open && lost && IsPlacing() && WaitsForOtherLane()) {
      broken_ = status;
      return;
    }
    ended = TakeOperations();
    if (was_open) {
      failure = PeerStatus(status);
      broken_ = status;
    } else {
      Shut();
    }
  }
  if (was_open) {
    TellEnd(failure, lost, ended);
  }
  for (const auto& operation : ended) {
    operation->Complete(failure);
  }
}

bool Channel::WaitsForOtherLane() {
  const Time now = Now();
  if (told_by_ == Time()) {
    told_by_ = now + kOtherLaneTells;
    Unwatch();  // What is broken stays ready to read.
  }
  RunLater(told_by_);
  return now < told_by_;
}

// The channel counts as open until all know of its end: an operation that begins meanwhile ends as
// the others do, after the news.
void Channel::TellEnd(Status& failure, bool lost, Operations& ended) {
  if (lost) {
    options_.lost->Add();
  }
  if (options_.on_end) {
    failure = options_.on_end(failure, lost);
  }
  const MutexLock lock(mutex_);
  if (phase_ == Phase::kClosed) {
    return;
  }
  if (phase_ == Phase::kOpen) {
    failure_ = failure;
    Operations late = TakeOperations();
    std::move(late.begin(), late.end(), std::back_inserter(ended));
  }
  Shut();
}

Status Channel::PeerStatus(const Status& status) const {
  switch (status.code()) {
    case StatusCode::kAborted:
      return AbortedError("{} aborted: {}", options_.peer_name, status.message());
    case StatusCode::kCancelled:
      return UnavailableError("{} left the group", options_.peer_name);
    default:
      return UnavailableError("{} was lost: {}", options_.peer_name, status.message());
  }
}

void Channel::RunLater(Time time) {
  if (time < run_at_) {
    run_at_ = time;
    loop_->RunAt(time, [self = weak_from_this(), time] {
      if (const auto channel = self.lock()) {
        channel->HandleTimer(time);
      }
    });
  }
}

// Brings what epoll watches in line with what the channel can use now.
void Channel::Rearm() {
  if (!started_ || phase_ == Phase::kClosed) {
    return;
  }
  const bool driven = IsDriven();
  const bool want_read = !in_limited_ && !driven;
  const bool want_write = sending_ && !out_limited_ && !driven;
  const auto wanted = connection_->Watches(want_read, want_write);
  for (size_t i = 0; i < wanted.size(); ++i) {
    Registered& watch = watches_[i];
    if (wanted[i].fd < 0) {
      continue;
    }
    if (watch.watch == 0) {
      watch.fd = wanted[i].fd;
      watch.events = wanted[i].events;
      const auto handler = [self = weak_from_this(), fd = watch.fd](uint32_t events) {
        if (const auto channel = self.lock()) {
          channel->HandleReady(fd, events);
        }
      };
      watch.watch = loop_->Add(watch.fd, watch.events, handler, options_.lane == Lane::kUrgent);
    } else if (watch.events != wanted[i].events) {
      watch.events = wanted[i].events;
      loop_->Modify(watch.watch, watch.fd, watch.events);
    }
  }
  // A driver prepares its own sleep.
  if (!driven && !connection_->PrepareToWait(want_read, want_write)) {
    RunLater(Now());
  }
}

Channel::Operations Channel::TakeOperations() {
  EndPlaced();  // What arrived before the end has ended well.
  Operations all;
  for (auto* queue : {&messages_, &granted_}) {
    std::move(queue->begin(), queue->end(), std::back_inserter(all));
    queue->clear();
  }
  for (const auto& [id, operation] : asked_) {
    given_up_.insert(id);
  }
  for (auto* table : {&asked_, &expected_}) {
    for (auto& [id, operation] : *table) {
      all.push_back(std::move(operation));
    }
    table->clear();
  }
  for (auto& [key, queue] : posted_) {
    std::move(queue.begin(), queue.end(), std::back_inserter(all));
  }
  posted_.clear();
  if (in_operation_ != nullptr) {
    all.push_back(std::exchange(in_operation_, nullptr));
    in_target_ = nullptr;
  }
  if (in_early_ != nullptr && in_early_->taken_by != nullptr) {
    all.push_back(std::exchange(in_early_->taken_by, nullptr));
  }
  if (out_.operation != nullptr) {
    all.push_back(out_.operation);
    Detach(*all.back());
  }
  for (const Placing& placing : placing_) {
    all.push_back(placing.operation);
  }
  placing_.clear();
  if (std::any_of(all.begin(), all.end(), [](const auto& one) { return IsInDevice(*one); })) {
    info_.placement->Withdraw();
  }
  return all;
}

// Forgets an operation, so that nothing touches its buffer any more. A frame that is half written
// is finished from a copy: the stream must stay whole for the messages behind it.
void Channel::Detach(Operation& operation) {
  const auto is_it = [&operation](const auto& other) { return other.get() == &operation; };
  if (IsInDevice(operation) && connection_ != nullptr) {
    info_.placement->Withdraw();
    std::erase_if(placing_, [&](const Placing& placing) { return is_it(placing.operation); });
  }
  for (auto* queue : {&messages_, &granted_}) {
    std::erase_if(*queue, is_it);
  }
  if (operation.is_send && asked_.erase(operation.id) != 0) {
    given_up_.insert(operation.id);
  }
  std::erase_if(expected_, [&](const auto& entry) { return is_it(entry.second); });
  const auto posted = posted_.find(operation.key);
  if (posted != posted_.end() && !operation.is_send) {
    std::erase_if(posted->second, is_it);
    if (posted->second.empty()) {
      posted_.erase(posted);
    }
  }
  if (in_operation_.get() == &operation) {
    in_operation_ = nullptr;
    in_target_ = nullptr;
  }
  if (in_early_ != nullptr && in_early_->taken_by.get() == &operation) {
    in_early_->taken_by = nullptr;
  }
  if (out_.operation.get() == &operation && out_.to_place > 0) {
    out_ = Outgoing{};
    sending_ = false;
  } else if (out_.operation.get() == &operation) {
    if (out_.payload != nullptr) {
      out_.owned.assign(out_.payload, out_.payload + out_.header.length);
    }
    out_.payload = nullptr;
    out_.operation = nullptr;
  }
}

void Channel::CancelOperation(Operation& operation, const Status& status) {
  const MutexLock lock(mutex_);
  if (!operation.Done()) {
    Detach(operation);
    operation.Complete(status);
  }
}

Status Channel::SendDescriptor(uint64_t id, int fd) {
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return failure_;
  }
  return info_.descriptors != nullptr
             ? info_.descriptors->Send(id, fd)
             : UnimplementedError("{} hands over no descriptors", transport());
}

Result<UniqueFd> Channel::TakeDescriptor(uint64_t id) {
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return failure_;
  }
  if (info_.descriptors == nullptr) {
    return UnimplementedError("{} hands over no descriptors", transport());
  }
  return info_.descriptors->Take(id);
}

void Channel::CountShared(int64_t sent, int64_t received) {
  bytes_sent_.fetch_add(sent);
  options_.sent_bytes->Add(static_cast<double>(sent));
  options_.received_bytes->Add(static_cast<double>(received));
}

// Before a descriptor is closed: its number may be another's at once.
void Channel::Unwatch() {
  for (Registered& watch : watches_) {
    if (watch.watch != 0) {
      loop_->Remove(watch.watch, watch.fd);
      watch = Registered{};
    }
  }
}

void Channel::Shut() {
  Unwatch();
  connection_.reset();
  SetWaiting(out_waits_, false, *options_.outgoing);
  SetWaiting(in_waits_, false, *options_.incoming);
  options_.open->Add(-1);
  phase_ = Phase::kClosed;
}

void Channel::Close(const Status& reason, bool aborted) {
  Operations ended;
  {
    const MutexLock lock(mutex_);
    if (phase_ != Phase::kOpen) {
      return;
    }
    failure_ = reason;
    phase_ = Phase::kLingering;
    ended = TakeOperations();
    early_.clear();
    control_.clear();
    if (aborted) {
      QueueControl(FrameKind::kAbort, 0, 0, reason.message());
    } else {
      QueueControl(FrameKind::kGoodbye, 0, 0);
    }
    started_ = true;
    if (Pump().ok()) {
      Rearm();
      loop_->RunAt(After(kLinger), [self = shared_from_this()] { self->Reset(); });
    } else {
      Shut();
    }
  }
  for (const auto& operation : ended) {
    operation->Complete(reason);
  }
}

void Channel::Fail(const Status& status) {
  Operations ended;
  {
    const MutexLock lock(mutex_);
    if (phase_ != Phase::kOpen) {
      return;
    }
    failure_ = status;
    ended = TakeOperations();
    Shut();
  }
  for (const auto& operation : ended) {
    operation->Complete(status);
  }
}

bool Channel::closed() const {
  const MutexLock lock(mutex_);
  return phase_ == Phase::kClosed;
}

void Channel::Reset() {
  Operations ended;
  Status failure;
  {
    const MutexLock lock(mutex_);
    if (phase_ == Phase::kClosed) {
      return;
    }
    if (failure_.ok()) {
      failure_ = CancelledError("connection with {} closed", options_.peer_name);
    }
    failure = failure_;
    ended = TakeOperations();
    Unwatch();
    connection_->Close(Connection::Ending::kAtOnce);
    Shut();
  }
  for (const auto& operation : ended) {
    operation->Complete(failure);
  }
}

}  // namespace heddle::comm
