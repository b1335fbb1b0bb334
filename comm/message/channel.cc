#include "comm/message/channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <sys/epoll.h>

namespace heddle::comm {

namespace {

/// How long a closed channel waits for its peer to read the notification.
constexpr Duration kLinger = std::chrono::seconds(1);
/// A peer that ends its group in the middle of a placement revokes access to its memory, which
/// breaks this traffic class; the other traffic class reports the reason within this time.
constexpr Duration kOtherClassTells = std::chrono::milliseconds(50);

/// Whether the peer reported its end, so that it was not lost.
bool IsLastWord(const Status& status) {
  return status.code() == StatusCode::kAborted || status.code() == StatusCode::kCancelled;
}

Status PeerStatus(const std::string& peer, const Status& status) {
  switch (status.code()) {
    case StatusCode::kAborted:
      return AbortedError("{} aborted: {}", peer, status.message());
    case StatusCode::kCancelled:
      return UnavailableError("{} left the group", peer);
    default:
      return UnavailableError("{} was lost: {}", peer, status.message());
  }
}

void CompleteAll(const Operations& operations, const Status& status) {
  for (const auto& operation : operations) {
    operation->Complete(status);
  }
}

}  // namespace

Channel::Channel(std::shared_ptr<EventLoop> loop,
                 std::unique_ptr<Connection> connection,
                 ChannelOptions options)
    : options_(std::move(options)),
      stream_(std::move(connection),
              {.traffic_class = options_.traffic_class,
               .outgoing = options_.outgoing,
               .incoming = options_.incoming,
               .sent_bytes = options_.sent_bytes,
               .received_bytes = options_.received_bytes}),
      peer_process_(passes_descriptors() ? stream_.info().descriptors->peer_process() : 0),
      watch_(std::move(loop), options_.traffic_class == TrafficClass::kUrgent),
      placement_(stream_, options_.regions, options_.placed_bytes),
      sender_(static_cast<uint32_t>(options_.generation), stream_, placement_, options_.frames),
      receiver_(static_cast<uint32_t>(options_.generation),
                stream_,
                sender_,
                placement_,
                options_.frames,
                options_.peer_name,
                options_.reports) {
  options_.open->Add(1);
}

Channel::~Channel() {
  Reset();
}

void Channel::Start() {
  const MutexLock lock(mutex_);
  if (phase_ == Phase::kOpen) {
    watch_.Start(weak_from_this());
    Rearm();
    watch_.RunAt(Now());
  }
}

std::shared_ptr<Operation> Channel::Send(MessageKey key, std::span<const std::byte> data) {
  auto operation = std::make_shared<Operation>(options_.operation_timeout, shared_from_this());
  operation->key = key;
  operation->is_send = true;
  operation->source = data.data();
  operation->size = data.size();
  const MutexLock lock(mutex_);
  operation->in_device = placement_.TouchesDevice(data);
  if (phase_ != Phase::kOpen) {
    operation->Complete(failure_);
    return operation;
  }
  sender_.Queue(operation);
  if (!sender_.sending()) {  // Otherwise the connection is full; the loop goes on when it has room.
    PumpFromCaller();
  }
  return operation;
}

std::shared_ptr<Operation> Channel::Recv(MessageKey key, std::span<std::byte> data) {
  auto operation = std::make_shared<Operation>(options_.operation_timeout, shared_from_this());
  operation->key = key;
  operation->target = data.data();
  operation->size = data.size();
  const MutexLock lock(mutex_);
  operation->in_device = placement_.TouchesDevice(data);
  // Messages that a peer sent before it left can still be received.
  if (phase_ != Phase::kOpen && !receiver_.HasWhole(key)) {
    operation->Complete(failure_);
    return operation;
  }
  receiver_.Take(operation);
  PumpFromCaller();
  return operation;
}

Status Channel::RegisterDeviceMemory(std::span<const std::byte> bytes) {
  const MutexLock lock(mutex_);
  return phase_ == Phase::kOpen ? placement_.RegisterDeviceMemory(bytes) : failure_;
}

void Channel::CancelOperation(Operation& operation, const Status& status) {
  const MutexLock lock(mutex_);
  if (operation.Done()) {
    return;
  }
  if (Placement::IsInDevice(operation) && phase_ != Phase::kClosed) {
    placement_.Withdraw();
    placement_.Forget(operation);
  }
  sender_.Forget(operation);
  receiver_.Forget(operation);
  operation.Complete(status);
}

Status Channel::Receive(const Work::State* awaited) {
  const Status status = receiver_.Receive(awaited);
  watch_.RunAt(stream_.TakeResumeAt());
  return status;
}

Status Channel::Pump() {
  const Result<bool> more = sender_.Pump();
  watch_.RunAt(stream_.TakeResumeAt());
  if (more.ok() && !*more && phase_ == Phase::kLingering && !write_closed_) {
    write_closed_ = true;
    stream_.connection().Close(Connection::Ending::kWriting);
  }
  return more.status();
}

// Moves what fits at once, in the caller's thread: a small message then needs no hop to the loop.
void Channel::PumpFromCaller() {
  if (!watch_.started() || phase_ != Phase::kOpen || !broken_.ok() || !sender_.HasOutput()) {
    return;
  }
  const Status status = Pump();
  if (!status.ok()) {
    LeaveToLoop(status, Now());
    return;
  }
  if (sender_.sending()) {  // The connection is full: the loop is to see when it has room.
    watch_.EndLease();
  }
  Rearm();
}

void Channel::LeaveToLoop(const Status& status, Time now) {
  broken_ = status;
  watch_.RunAt(now);
}

Channel::Look Channel::DriveOnce(const Work::State& awaited, bool woken, Time now) {
  const MutexLock lock(mutex_);
  if (!watch_.started() || phase_ != Phase::kOpen || !broken_.ok() || stream_.limited()) {
    return {};
  }
  const bool in_flight =
      sender_.HasOutput() || sender_.asks() || !placement_.empty() || receiver_.InFlight();
  if (!in_flight) {  // The peer's end is the loop's to notice, however long this drive is.
    if (watch_.driven()) {
      Release(true);
    }
    return {};
  }
  if (watch_.BeginDrive()) {
    Rearm();
  }
  Connection& connection = stream_.connection();
  if (woken) {
    const Connection::Watch slept_on = connection.SleepOn(sender_.sending());
    connection.OnReady(slept_on.fd, slept_on.events);
  }
  const uint64_t moved_before = stream_.moved();
  Status status = Receive(&awaited);
  if (status.ok()) {
    status = Pump();
  }
  if (!status.ok()) {
    LeaveToLoop(status, now);
    return {};
  }
  return {.in_use = true,
          .moved = stream_.moved() != moved_before,
          .sleep_on = connection.SleepOn(sender_.sending())};
}

bool Channel::PrepareToSleep() {
  const MutexLock lock(mutex_);
  return phase_ == Phase::kOpen && broken_.ok() &&
         stream_.connection().PrepareToWait(true, sender_.sending());
}

void Channel::EndDrive(bool lease) {
  const MutexLock lock(mutex_);
  if (watch_.driven()) {
    Release(lease);
  }
}

void Channel::Release(bool lease) {
  const bool leased = lease && watch_.started() && phase_ != Phase::kClosed && !sender_.HasOutput();
  watch_.EndDrive(leased);
  if (leased || !watch_.started() || phase_ == Phase::kClosed) {
    return;
  }
  // Read, but behind what the driver waited for; or the driver's turn ended between two frames.
  // The loop may have come for them meanwhile and gone again.
  if (receiver_.HasStaged() || (sender_.HasOutput() && !sender_.sending())) {
    watch_.RunAt(Now());
  }
  Rearm();
}

bool Channel::IsDriven() const {
  return watch_.HeldByCaller() && phase_ == Phase::kOpen && broken_.ok() && !stream_.limited();
}

void Channel::Rearm() {
  if (!watch_.started() || phase_ == Phase::kClosed) {
    return;
  }
  Connection& connection = stream_.connection();
  const bool driven = IsDriven();
  const bool want_read = !stream_.in_limited() && !driven;
  const bool want_write = sender_.sending() && !stream_.out_limited() && !driven;
  watch_.Rearm(connection, want_read, want_write);
  // A driver prepares its own sleep.
  if (!driven && !connection.PrepareToWait(want_read, want_write)) {
    watch_.RunAt(Now());
  }
}

void Channel::HandleTimer(Time time) {
  {
    const MutexLock lock(mutex_);
    if (!watch_.TakeTimer(time)) {
      return;
    }
    watch_.EndLeaseIfOver();
    if (IsDriven()) {
      if (!watch_.driven()) {
        watch_.RunAt(watch_.leased_until());
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
      if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
        stream_.PeerHungUp();
      }
      stream_.connection().OnReady(fd, events);
    }
    // A caller's thread may have read already why the peer ended; afterwards there is only an end.
    Status status = IsLastWord(broken_) ? broken_ : Receive(nullptr);
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
    lost = !IsLastWord(status);
    was_open = phase_ == Phase::kOpen;
    if (was_open && lost && IsInDevice() && WaitsForOtherClass()) {
      broken_ = status;
      return;
    }
    ended = TakeOperations();
    if (was_open) {
      failure = PeerStatus(options_.peer_name, status);
      broken_ = status;
    } else {
      Shut();
    }
  }
  if (was_open) {
    NotifyEnd(failure, lost, ended);
  }
  CompleteAll(ended, failure);
}

bool Channel::WaitsForOtherClass() {
  const Time now = Now();
  if (reason_due_ == Time()) {
    reason_due_ = now + kOtherClassTells;
    watch_.Unwatch();  // What is broken stays ready to read.
  }
  watch_.RunAt(reason_due_);
  return now < reason_due_;
}

// The channel counts as open until all know of its end: an operation that begins meanwhile ends as
// the others do, after the news.
void Channel::NotifyEnd(Status& failure, bool lost, Operations& ended) {
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

bool Channel::IsInDevice() const {
  return sender_.IsPlacing() || receiver_.IsExposed();
}

Operations Channel::TakeOperations() {
  placement_.EndArrived();  // What arrived before the end has ended well.
  Operations all;
  sender_.TakeAll(all);
  receiver_.TakeAll(all);
  placement_.TakeAll(all);
  if (std::any_of(all.begin(), all.end(),
                  [](const auto& one) { return Placement::IsInDevice(*one); })) {
    placement_.Withdraw();
  }
  return all;
}

Status Channel::SendDescriptor(uint64_t id, int fd) {
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return failure_;
  }
  return passes_descriptors() ? stream_.info().descriptors->Send(id, fd)
                              : UnimplementedError("{} hands over no descriptors", transport());
}

Result<UniqueFd> Channel::TakeDescriptor(uint64_t id) {
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return failure_;
  }
  if (!passes_descriptors()) {
    return UnimplementedError("{} hands over no descriptors", transport());
  }
  return stream_.info().descriptors->Take(id);
}

Channel::Snapshot Channel::Inspect(const KeyPredicate& awaited,
                                   const KeyPredicate& unexpected) const {
  const MutexLock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return {};
  }
  return {.open = true,
          .waits = sender_.Has(awaited) || receiver_.Has(awaited) || placement_.Has(awaited),
          .unexpected = receiver_.Unexpected(unexpected)};
}

void Channel::Report(const FrameHeader& report) {
  const MutexLock lock(mutex_);
  if (phase_ == Phase::kOpen) {
    sender_.QueueControl(report);
    PumpFromCaller();
  }
}

void Channel::Shut() {
  watch_.Unwatch();
  stream_.Close();
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
    receiver_.DropEarly();
    sender_.ClearControl();
    FrameHeader last_words;
    last_words.kind = aborted ? FrameKind::kAbort : FrameKind::kGoodbye;
    sender_.QueueControl(last_words, aborted ? reason.message() : std::string_view());
    watch_.Start(weak_from_this());
    if (Pump().ok()) {
      Rearm();
      watch_.loop().RunAt(After(kLinger), [self = shared_from_this()] { self->Reset(); });
    } else {
      Shut();
    }
  }
  CompleteAll(ended, reason);
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
  CompleteAll(ended, status);
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
    watch_.Unwatch();
    stream_.connection().Close(Connection::Ending::kAtOnce);
    Shut();
  }
  CompleteAll(ended, failure);
}

}  // namespace heddle::comm
