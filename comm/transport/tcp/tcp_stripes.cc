#include "comm/transport/tcp/tcp_stripes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "comm/transport/ip_socket.h"

namespace heddle::comm {

namespace {

/// The header of each segment, little endian.
struct SegmentHeader {
  static constexpr uint32_t kMagic = 0x31535448;  // "HTS1"
  uint32_t magic = kMagic;
  uint32_t bytes = 0;
  uint64_t position = 0;  ///< Position of the segment's first byte in the stream.
};
static_assert(sizeof(SegmentHeader) == 16);

/// The most bytes of a segment: half of a channel's frame. It is not larger because the rest of a
/// segment that a socket took in part is kept in memory.
constexpr size_t kSegmentBytes = (size_t{128} << 10) + 64;
/// Smaller segments are given to the socket of the previous one, without trying all sockets.
constexpr size_t kSmallBytes = size_t{16} << 10;
constexpr size_t kStageBytes = size_t{4} << 10;
constexpr uint32_t kUnwatched = std::numeric_limits<uint32_t>::max();

struct Stripe {
  UniqueFd socket;
  uint32_t interest = kUnwatched;  ///< Events that epoll watches for.

  // Sending.
  Bytes rest;  ///< A segment that the socket took in part.
  size_t rest_done = 0;
  bool rest_watched = false;
  bool shut = false;

  // Receiving. The stage holds what was read with a header, or too little to be read by itself.
  std::array<std::byte, kStageBytes> stage;
  size_t stage_begin = 0;
  size_t stage_end = 0;
  uint64_t position = 0;  ///< Position of the next byte of the segment that is arriving.
  size_t left = 0;        ///< Bytes left of the segment that is arriving; 0: none is.
  uint64_t after = 0;     ///< The next segment of this socket begins here or later.
  bool ended = false;     ///< The socket's end, or its error, was read.

  size_t staged() const { return stage_end - stage_begin; }
};

Status ClosedError() {
  return UnavailableError("the peer closed the connection");
}

bool IsTemporary(int error) {
  return error == EAGAIN || error == EINTR || error == ENOBUFS;
}

class TcpStripes final : public Connection {
 public:
  TcpStripes(UniqueFd epoll, UniqueFd rests, std::vector<UniqueFd> sockets)
      : epoll_(std::move(epoll)),
        rests_(std::move(rests)),
        stripes_(sockets.size()) {
    for (size_t i = 0; i < sockets.size(); ++i) {
      stripes_[i].socket = std::move(sockets[i]);
      TuneTcp(stripes_[i].socket.get(), TrafficClass::kBulk);
      WaitForReader(stripes_[i].socket.get());
    }
  }

  ConnectionInfo info() override { return {.transport = "tcp"}; }
  Result<size_t> Write(std::span<const iovec> parts) override;
  Result<size_t> Read(std::span<std::byte> buffer) override;
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override;
  Watch SleepOn(bool /*want_write*/) const override {
    return {.fd = epoll_.get(), .events = EPOLLIN};
  }
  void OnReady(int fd, uint32_t /*events*/) override {
    fd == rests_.get() ? TakeRests() : TakeEvents();
  }
  bool PrepareToWait(bool want_read, bool want_write) override;
  void Close(Ending how) override;

 private:
  /// Handles events of sockets that are neither read nor written, such as one that breaks.
  void TakeEvents();
  void TakeRests();
  void WatchRest(Stripe& stripe, bool watch);
  Status Flush(Stripe& stripe);
  /// Has epoll watch each socket for what is wanted of it.
  void Arm(bool want_read, bool want_write);
  /// Ends the watch of a socket until it is waited for again, because its event stays ready.
  void Unwatch(Stripe& stripe);
  void Break(const Status& status) { broken_ = broken_.ok() ? status : broken_; }
  /// Gives a socket a segment; false: it has no room.
  Result<bool> Give(Stripe& stripe, std::span<const iovec> parts, size_t bytes);
  /// The socket from which the segment that is due arrives; null: none, as far as is known.
  Stripe* Arriving();
  /// The result of Arriving after a look at the sockets.
  Result<Stripe*> Due();
  /// Reads a segment's header, if it is here.
  Status ReadHeader(Stripe& stripe);
  /// Receives bytes and returns how many; 0: none yet. Marks an end, and records a loss.
  size_t Receive(Stripe& stripe, std::span<std::byte> buffer);
  size_t ReadSegment(Stripe& stripe, std::span<std::byte> buffer);
  void Lose(const Status& status);
  void CloseWriting();
  void Reset();

  const UniqueFd epoll_;  ///< Epoll of the sockets with what is wanted of them.
  const UniqueFd rests_;  ///< Epoll of the sockets with a rest to write, whatever is wanted.
  std::vector<Stripe> stripes_;
  size_t current_ = 0;      ///< The socket that got the last segment.
  uint64_t written_ = 0;    ///< Bytes of the stream given to sockets.
  uint64_t delivered_ = 0;  ///< Bytes of the stream read.
  bool closing_ = false;
  Status lost_;    ///< A socket broke; reported after the bytes that still arrive in order.
  Status broken_;  ///< The error that calls return.
};

// The parts from `offset` on, `bytes` of them.
template <typename Take>
void EachPiece(std::span<const iovec> parts, size_t offset, size_t bytes, const Take& take) {
  for (const iovec& part : parts) {
    if (offset >= part.iov_len) {
      offset -= part.iov_len;
      continue;
    }
    const size_t count = std::min(bytes, part.iov_len - offset);
    if (count == 0) {
      return;
    }
    take(static_cast<std::byte*>(part.iov_base) + offset, count);
    bytes -= count;
    offset = 0;
  }
}

Result<bool> TcpStripes::Give(Stripe& stripe, std::span<const iovec> parts, size_t bytes) {
  HEDDLE_RETURN_IF_ERROR(Flush(stripe));
  if (!stripe.rest.empty()) {
    return false;
  }
  SegmentHeader header{.bytes = static_cast<uint32_t>(bytes), .position = written_};
  std::vector<iovec> pieces{{.iov_base = &header, .iov_len = sizeof(header)}};
  EachPiece(parts, 0, bytes, [&](std::byte* data, size_t count) {
    pieces.push_back({.iov_base = data, .iov_len = count});
  });
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t sent = ::sendmsg(stripe.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    return IsTemporary(errno) ? Result<bool>(false)
                              : UnavailableError("write: {}", ErrnoError(errno, "tcp").message());
  }
  EachPiece(pieces, static_cast<size_t>(sent), sizeof(header) + bytes - static_cast<size_t>(sent),
            [&](const std::byte* data, size_t count) {
              stripe.rest.insert(stripe.rest.end(), data, data + count);
            });
  WatchRest(stripe, !stripe.rest.empty());
  return true;
}

Result<size_t> TcpStripes::Write(std::span<const iovec> parts) {
  HEDDLE_RETURN_IF_ERROR(broken_);
  size_t total = 0;
  for (const iovec& part : parts) {
    total += part.iov_len;
  }
  // One segment a call, which takes the rest with the next.
  const size_t bytes = std::min(total, kSegmentBytes);
  for (size_t tries = 0; tries < stripes_.size(); ++tries) {
    HEDDLE_ASSIGN_OR_RETURN(const bool given, Give(stripes_[current_], parts, bytes));
    if (!given || bytes > kSmallBytes) {
      current_ = (current_ + 1) % stripes_.size();
    }
    if (given) {
      written_ += bytes;
      return bytes;
    }
  }
  return size_t{0};
}

Status TcpStripes::Flush(Stripe& stripe) {
  while (stripe.rest_done < stripe.rest.size()) {
    const ssize_t sent = ::send(stripe.socket.get(), stripe.rest.data() + stripe.rest_done,
                                stripe.rest.size() - stripe.rest_done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      return IsTemporary(errno) ? Status::Ok()
                                : UnavailableError("write: {}", ErrnoError(errno, "tcp").message());
    }
    stripe.rest_done += static_cast<size_t>(sent);
  }
  stripe.rest.clear();
  stripe.rest_done = 0;
  WatchRest(stripe, false);
  if (closing_ && !stripe.shut) {
    stripe.shut = true;
    ::shutdown(stripe.socket.get(), SHUT_WR);
  }
  return Status::Ok();
}

size_t TcpStripes::Receive(Stripe& stripe, std::span<std::byte> buffer) {
  const ssize_t got = ::recv(stripe.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got > 0) {
    return static_cast<size_t>(got);
  }
  if (got < 0 && IsTemporary(errno)) {
    return 0;
  }
  if (got < 0) {
    Lose(UnavailableError("read: {}", ErrnoError(errno, "tcp").message()));
  } else if (stripe.left > 0 || stripe.staged() > 0) {
    Lose(ClosedError());
  }
  stripe.ended = true;
  return 0;
}

Status TcpStripes::ReadHeader(Stripe& stripe) {
  if (stripe.staged() < sizeof(SegmentHeader) && !stripe.ended) {
    std::memmove(stripe.stage.data(), stripe.stage.data() + stripe.stage_begin, stripe.staged());
    stripe.stage_end -= std::exchange(stripe.stage_begin, 0);
    stripe.stage_end += Receive(stripe, std::span(stripe.stage).subspan(stripe.stage_end));
  }
  if (stripe.staged() < sizeof(SegmentHeader)) {
    return Status::Ok();
  }
  SegmentHeader header;
  std::memcpy(&header, stripe.stage.data() + stripe.stage_begin, sizeof(header));
  stripe.stage_begin += sizeof(header);
  if (header.magic != SegmentHeader::kMagic || header.bytes == 0 || header.bytes > kSegmentBytes ||
      header.position < std::max(stripe.after, delivered_) ||
      header.position > std::numeric_limits<uint64_t>::max() - header.bytes) {
    return DataLossError("a segment of {} bytes at {} where the stream is at {}", header.bytes,
                         header.position, delivered_);
  }
  stripe.position = header.position;
  stripe.left = header.bytes;
  stripe.after = header.position + header.bytes;
  return Status::Ok();
}

Stripe* TcpStripes::Arriving() {
  for (Stripe& stripe : stripes_) {
    if (stripe.left > 0 && stripe.position == delivered_) {
      return &stripe;
    }
  }
  return nullptr;
}

Result<Stripe*> TcpStripes::Due() {
  if (Stripe* const arriving = Arriving()) {
    return arriving;
  }
  bool open = false;  // Whether one may still bring it.
  bool ended = true;
  for (Stripe& stripe : stripes_) {
    if (stripe.left == 0) {
      HEDDLE_RETURN_IF_ERROR(ReadHeader(stripe));
    }
    if (stripe.left > 0 && stripe.position == delivered_) {
      return &stripe;
    }
    open = open || (stripe.left == 0 && !stripe.ended);
    ended = ended && stripe.ended && stripe.left == 0;
  }
  if (!lost_.ok()) {
    return lost_;
  }
  if (ended) {
    return ClosedError();
  }
  if (!open) {
    return DataLossError("the segment at {} will never come", delivered_);
  }
  return nullptr;
}

size_t TcpStripes::ReadSegment(Stripe& stripe, std::span<std::byte> buffer) {
  const auto wanted = buffer.first(std::min(buffer.size(), stripe.left));
  if (stripe.staged() == 0 && stripe.left <= kStageBytes / 2) {  // The next header may be with it.
    stripe.stage_begin = stripe.stage_end = 0;
    stripe.stage_end = Receive(stripe, stripe.stage);
  }
  size_t got = std::min(wanted.size(), stripe.staged());
  if (got > 0) {
    std::memcpy(wanted.data(), stripe.stage.data() + stripe.stage_begin, got);
    stripe.stage_begin += got;
  } else if (stripe.left > kStageBytes / 2) {
    got = Receive(stripe, wanted);
  }
  stripe.position += got;
  stripe.left -= got;
  delivered_ += got;
  return got;
}

Result<size_t> TcpStripes::Read(std::span<std::byte> buffer) {
  size_t total = 0;
  while (total < buffer.size() && broken_.ok()) {
    const Result<Stripe*> due = Due();
    if (!due.ok()) {
      broken_ = due.status();
      break;
    }
    const size_t got = *due == nullptr ? 0 : ReadSegment(**due, buffer.subspan(total));
    if (got == 0) {
      Break(lost_);
      break;
    }
    total += got;
  }
  // Bytes that came before the end are returned first.
  return total > 0 || broken_.ok() ? Result<size_t>(total) : broken_;
}

// While the segment that is due arrives, the other sockets are not watched: their bytes cannot be
// used yet, and would wake the caller in vain.
void TcpStripes::Arm(bool want_read, bool want_write) {
  const Stripe* const due = Arriving();
  for (size_t i = 0; i < stripes_.size(); ++i) {
    Stripe& stripe = stripes_[i];
    const bool matters = due == nullptr ? stripe.left == 0 : &stripe == due;
    const bool in = want_read && !stripe.ended && matters;
    const uint32_t interest = (in ? EPOLLIN : 0U) | (want_write ? EPOLLOUT : 0U);
    const bool watched = stripe.interest != kUnwatched;
    if (interest != stripe.interest && stripe.socket.valid() && (watched || interest != 0)) {
      epoll_event event{};
      event.events = interest;
      event.data.u64 = i;
      const int change = watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
      if (::epoll_ctl(epoll_.get(), change, stripe.socket.get(), &event) != 0) {
        Break(UnavailableError("{}", ErrnoError(errno, "epoll").message()));
      }
      stripe.interest = interest;
    }
  }
}

std::array<Connection::Watch, 2> TcpStripes::Watches(bool want_read, bool want_write) {
  const bool wanted = want_read || want_write;
  if (wanted) {  // Otherwise a driver may be asleep on these sockets.
    Arm(want_read, want_write);
  }
  return {Watch{.fd = epoll_.get(), .events = wanted ? EPOLLIN : 0U},
          Watch{.fd = rests_.get(), .events = EPOLLIN}};
}

bool TcpStripes::PrepareToWait(bool want_read, bool want_write) {
  Arm(want_read, want_write);
  const Stripe* const due = Arriving();
  const bool staged = due != nullptr
                          ? due->staged() > 0
                          : std::any_of(stripes_.begin(), stripes_.end(), [](const Stripe& stripe) {
                              return stripe.left == 0 && stripe.staged() >= sizeof(SegmentHeader);
                            });
  return broken_.ok() && lost_.ok() && !(want_read && staged);
}

void TcpStripes::TakeEvents() {
  std::array<epoll_event, kMaxStripes> ready{};
  const int count = ::epoll_wait(epoll_.get(), ready.data(), kMaxStripes, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    Stripe& stripe = stripes_[event.data.u64];
    if ((event.events & EPOLLERR) != 0) {
      int error = 0;
      socklen_t size = sizeof(error);
      ::getsockopt(stripe.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      Lose(UnavailableError("{}", ErrnoError(error, "tcp").message()));
    }
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) {
      Unwatch(stripe);
    }
  }
}

void TcpStripes::TakeRests() {
  std::array<epoll_event, kMaxStripes> ready{};
  const int count = ::epoll_wait(rests_.get(), ready.data(), kMaxStripes, 0);
  for (int i = 0; i < count; ++i) {
    Stripe& stripe = stripes_[ready[static_cast<size_t>(i)].data.u64];
    const Status flushed = Flush(stripe);
    if (!flushed.ok()) {
      Lose(flushed);
      WatchRest(stripe, false);
    }
  }
}

void TcpStripes::WatchRest(Stripe& stripe, bool watch) {
  if (watch == stripe.rest_watched) {
    return;
  }
  stripe.rest_watched = watch;
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.u64 = static_cast<uint64_t>(&stripe - stripes_.data());
  if (::epoll_ctl(rests_.get(), watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, stripe.socket.get(),
                  &event) != 0) {
    Break(UnavailableError("{}", ErrnoError(errno, "epoll").message()));
  }
}

void TcpStripes::Lose(const Status& status) {
  lost_ = lost_.ok() ? status : lost_;
}

void TcpStripes::Unwatch(Stripe& stripe) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stripe.socket.get(), nullptr);
  stripe.interest = kUnwatched;
}

void TcpStripes::Close(Ending how) {
  how == Ending::kWriting ? CloseWriting() : Reset();
}

void TcpStripes::CloseWriting() {
  closing_ = true;
  for (Stripe& stripe : stripes_) {
    Flush(stripe).IgnoreError("the peer is gone then");
  }
}

void TcpStripes::Reset() {
  for (Stripe& stripe : stripes_) {
    CloseByReset(stripe.socket);
  }
  broken_ = CancelledError("the connection was reset");
}

}  // namespace

Result<std::unique_ptr<Connection>> MakeTcpStripes(std::vector<UniqueFd> sockets) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd rests(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid() || !rests.valid()) {
    return ErrnoError(errno, "epoll_create1");
  }
  return std::unique_ptr<Connection>(
      std::make_unique<TcpStripes>(std::move(epoll), std::move(rests), std::move(sockets)));
}

}  // namespace heddle::comm
