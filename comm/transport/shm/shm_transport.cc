// Shared memory: the transport between workers of one host. A pair shares one anonymous memory file
// with a ring for each direction; it is handed over on the handshake's local socket, so nothing has
// a name and nothing is left behind by a killed process. The socket stays open: the kernel closes
// it when the peer dies, which both ends watch. Waiting is by two event descriptors, notified only
// when the other end sleeps: unlike a futex they fit the one epoll wait that also watches sockets
// and timers.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "comm/transport/registry.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/shm/descriptor_message.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

namespace {

constexpr const char* kName = "shm";

/// By traffic class. The urgent one's messages are small as a rule.
constexpr size_t RingBytes(TrafficClass traffic_class) {
  return size_t{traffic_class == TrafficClass::kBulk ? 512U : 128U} << 10;
}
constexpr size_t kPageBytes = 4096;
/// Descriptors of a peer that are kept for their use.
constexpr size_t kWaitingDescriptors = 256;

/// Shared control words of one direction. Positions only grow; a position's place is its remainder.
struct RingControl {
  alignas(64) std::atomic<uint64_t> head;  ///< Bytes written so far; written by the writer.
  alignas(64) std::atomic<uint64_t> tail;  ///< Bytes read so far; written by the reader.
  alignas(64) std::atomic<uint32_t> reader_sleeps;
  alignas(64) std::atomic<uint32_t> writer_sleeps;
};
static_assert(sizeof(RingControl) <= kPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t DirectionBytes(TrafficClass traffic_class) {
  return kPageBytes + RingBytes(traffic_class);
}
constexpr size_t SegmentBytes(TrafficClass traffic_class) {
  return 2 * DirectionBytes(traffic_class);
}

struct RingSegment {
  Mapping memory;
  UniqueFd own_notification;   ///< Wakes this end.
  UniqueFd peer_notification;  ///< Wakes the other.
};

class ShmConnection final : public Connection, public DescriptorPassing {
 public:
  ShmConnection(UniqueFd socket, RingSegment segment, TrafficClass traffic_class, bool dialled)
      : socket_(std::move(socket)),
        segment_(std::move(segment)),
        ring_bytes_(RingBytes(traffic_class)),
        outgoing_(segment_.memory.base() + (dialled ? 0 : DirectionBytes(traffic_class))),
        incoming_(segment_.memory.base() + (dialled ? DirectionBytes(traffic_class) : 0)) {}

  ConnectionInfo info() override { return {.transport = kName, .descriptors = this}; }
  pid_t peer_process() const override {
    ucred peer{};
    socklen_t size = sizeof(peer);
    return ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
  }

  Result<size_t> Write(std::span<const iovec> parts) override {
    RingControl& ring = Control(outgoing_);
    const uint64_t used = written_ - ring.tail.load(std::memory_order_acquire);
    if (used > ring_bytes_) {
      return DataLossError("ring position out of range");
    }
    if (hung_up_) {
      return UnavailableError("the peer closed the connection");
    }
    size_t room = ring_bytes_ - used;
    const uint64_t before = written_;
    for (const iovec& part : parts) {
      const auto* source = static_cast<const std::byte*>(part.iov_base);
      const size_t count = std::min(room, part.iov_len);
      if (count == 0) {
        continue;  // An empty part need not point anywhere.
      }
      const size_t place = written_ % ring_bytes_;
      const size_t first = std::min(count, ring_bytes_ - place);
      std::memcpy(outgoing_ + kPageBytes + place, source, first);
      std::memcpy(outgoing_ + kPageBytes, source + first, count - first);
      written_ += count;
      room -= count;
    }
    if (written_ != before) {
      ring.head.store(written_);
      Notify(ring.reader_sleeps);
    }
    return static_cast<size_t>(written_ - before);
  }

  Result<size_t> Read(std::span<std::byte> buffer) override {
    RingControl& ring = Control(incoming_);
    // The order matters: a peer that hung up wrote before it did.
    const bool hung_up = hung_up_;
    const uint64_t there = ring.head.load(std::memory_order_acquire) - read_;
    if (there > ring_bytes_) {
      return DataLossError("ring position out of range");
    }
    if (there == 0) {
      return hung_up ? Result<size_t>(UnavailableError("the peer closed the connection"))
                     : size_t{0};
    }
    const size_t count = std::min<size_t>(there, buffer.size());
    const size_t place = read_ % ring_bytes_;
    const size_t first = std::min(count, ring_bytes_ - place);
    std::memcpy(buffer.data(), incoming_ + kPageBytes + place, first);
    std::memcpy(buffer.data() + first, incoming_ + kPageBytes, count - first);
    read_ += count;
    ring.tail.store(read_);
    Notify(ring.writer_sleeps);
    return count;
  }

  std::array<Watch, 2> Watches(bool want_read, bool want_write) override {
    // Edge-triggered: each notification is an edge.
    const uint32_t wanted = want_read || want_write ? EPOLLIN : 0U;
    return {Watch{.fd = segment_.own_notification.get(), .events = wanted | EPOLLET},
            Watch{.fd = socket_.get(), .events = static_cast<uint32_t>(EPOLLRDHUP) | EPOLLET}};
  }

  Watch SleepOn(bool /*want_write*/) const override {
    return {.fd = segment_.own_notification.get(), .events = EPOLLIN};
  }
  void OnReady(int fd, uint32_t events) override {
    if (fd == segment_.own_notification.get()) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(fd, &count, sizeof(count));
    } else {
      hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    }
  }

  bool PrepareToWait(bool want_read, bool want_write) override {
    RingControl& in = Control(incoming_);
    RingControl& out = Control(outgoing_);
    // Announce, then look again: the other end publishes, then looks whether someone sleeps (both
    // in sequential order), so one of the two sees the other.
    in.reader_sleeps.store(want_read ? 1 : 0);
    out.writer_sleeps.store(want_write ? 1 : 0);
    const bool readable = want_read && (in.head.load() != read_ || hung_up_);
    const bool writable = want_write && written_ - out.tail.load() < ring_bytes_;
    return !readable && !writable;
  }

  Status Send(uint64_t id, int fd) override;
  Result<UniqueFd> Take(uint64_t id) override;

  void Close(Ending how) override {
    ::shutdown(socket_.get(), how == Ending::kWriting ? SHUT_WR : SHUT_RDWR);
  }

 private:
  static RingControl& Control(std::byte* direction) {
    return *reinterpret_cast<RingControl*>(direction);
  }

  void Notify(std::atomic<uint32_t>& sleeper) {
    if (sleeper.load() != 0 && sleeper.exchange(0) != 0) {
      const uint64_t one = 1;
      // It fails only when the counter is full, and then the peer is being woken already.
      [[maybe_unused]] const ssize_t written =
          ::write(segment_.peer_notification.get(), &one, sizeof(one));
    }
  }

  const UniqueFd socket_;
  const RingSegment segment_;
  const size_t ring_bytes_;  ///< Bytes of the ring of each direction.
  std::byte* const outgoing_;
  std::byte* const incoming_;
  uint64_t written_ = 0;  ///< Own positions: what the peer may scribble is never read back.
  uint64_t read_ = 0;
  bool hung_up_ = false;
  std::deque<std::pair<uint64_t, UniqueFd>> descriptors_;  ///< Come and not yet taken.
};

/// Descriptors that are sent with a segment.
constexpr size_t kDescriptors = 3;
static_assert(kDescriptors <= kMaxDescriptors);

/// The dialler's end of a new segment, which it sends to the acceptor.
Result<RingSegment> SendSegment(int socket, TrafficClass traffic_class) {
  HEDDLE_ASSIGN_OR_RETURN(const UniqueFd memory, MakeSharedMemory(SegmentBytes(traffic_class)));
  HEDDLE_ASSIGN_OR_RETURN(Mapping mapping,
                          Mapping::Of(memory.get(), SegmentBytes(traffic_class), false));
  RingSegment segment{.memory = std::move(mapping),
                      .own_notification = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                      .peer_notification = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  if (!segment.own_notification.valid() || !segment.peer_notification.valid()) {
    return ErrnoError(errno, "eventfd");
  }
  // The receiver's own notification is this end's peer notification.
  const int descriptors[kDescriptors] = {memory.get(), segment.peer_notification.get(),
                                         segment.own_notification.get()};
  const std::byte byte{1};
  HEDDLE_RETURN_IF_ERROR(SendDescriptors(socket, std::span(&byte, 1), descriptors));
  return segment;
}

/// Receives a segment; nullopt: it has not come yet.
Result<RingSegment> ReceiveSegment(int socket, TrafficClass traffic_class, bool& pending) {
  std::byte byte{};
  std::array<UniqueFd, kDescriptors> descriptors;
  HEDDLE_ASSIGN_OR_RETURN(const bool came,
                          ReceiveDescriptors(socket, std::span(&byte, 1), descriptors));
  pending = !came;
  if (pending) {
    return RingSegment{};
  }
  HEDDLE_ASSIGN_OR_RETURN(const size_t bytes,
                          CheckSharedMemory(descriptors[0].get(), SegmentBytes(traffic_class)));
  if (bytes != SegmentBytes(traffic_class)) {
    return DataLossError("the peer's shared memory has {} bytes where {} are expected", bytes,
                         SegmentBytes(traffic_class));
  }
  HEDDLE_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(descriptors[0].get(), bytes, false));
  return RingSegment{.memory = std::move(mapping),
                     .own_notification = std::move(descriptors[1]),
                     .peer_notification = std::move(descriptors[2])};
}

// After the handshake the local socket carries nothing but descriptors and the peer's end.
Status ShmConnection::Send(uint64_t id, int fd) {
  const int descriptors[1] = {fd};
  return SendDescriptors(socket_.get(), std::as_bytes(std::span(&id, 1)), descriptors);
}

// A region's descriptor arrives once for each group that it is offered in. A call that does not use
// the segment leaves its descriptor behind; the oldest of those are dropped.
Result<UniqueFd> ShmConnection::Take(uint64_t id) {
  const auto found = std::find_if(descriptors_.begin(), descriptors_.end(),
                                  [id](const auto& waiting) { return waiting.first == id; });
  if (found != descriptors_.end()) {
    UniqueFd taken = std::move(found->second);
    descriptors_.erase(found);
    return taken;
  }
  while (true) {
    uint64_t number = 0;
    std::array<UniqueFd, 1> descriptor;
    HEDDLE_ASSIGN_OR_RETURN(
        const bool came,
        ReceiveDescriptors(socket_.get(), std::as_writable_bytes(std::span(&number, 1)),
                           descriptor));
    if (!came) {
      return UnavailableError("the peer handed over no descriptor of this number");
    }
    if (number == id) {
      return std::move(descriptor[0]);
    }
    if (descriptors_.size() == kWaitingDescriptors) {
      descriptors_.pop_front();
    }
    descriptors_.emplace_back(number, std::move(descriptor[0]));
  }
}

class ShmTransport final : public SocketTransport {
 public:
  ShmTransport(UniqueFd listener, std::string name)
      : SocketTransport(kName),
        listener_(std::move(listener)),
        name_(std::move(name)) {}

  std::string address() const override { return name_; }
  std::vector<Listener> listeners() const override { return {{.socket = listener_.get()}}; }

  std::vector<Route> RoutesTo(const AddressParts& own,
                              const AddressParts& peer,
                              size_t /*number*/) const override {
    const auto mine = own.find("host");
    const auto theirs = peer.find("host");
    const auto name = peer.find(kName);
    const bool neighbours = name != peer.end() && mine != own.end() && theirs != peer.end() &&
                            !mine->second.empty() && mine->second == theirs->second;
    return neighbours ? std::vector<Route>{{.to = name->second}} : std::vector<Route>();
  }

  static socklen_t Name(const std::string& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;  // An abstract name: a zero byte, then the name.
    const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), size);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  }

  Result<UniqueFd> Dial(const Route& route) const override {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) {
      return ErrnoError(errno, "socket");
    }
    sockaddr_un address{};
    const socklen_t size = Name(route.to, address);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      return UnavailableError("{}", ErrnoError(errno, "connect of a local socket").message());
    }
    return socket;
  }

  Result<std::unique_ptr<Connection>> FinishDial(UniqueFd socket,
                                                 TrafficClass traffic_class) const override {
    HEDDLE_ASSIGN_OR_RETURN(RingSegment segment, SendSegment(socket.get(), traffic_class));
    return std::unique_ptr<Connection>(std::make_unique<ShmConnection>(
        std::move(socket), std::move(segment), traffic_class, true));
  }

  Result<std::unique_ptr<Connection>> FinishAccept(UniqueFd& socket,
                                                   TrafficClass traffic_class) const override {
    bool pending = false;
    HEDDLE_ASSIGN_OR_RETURN(RingSegment segment,
                            ReceiveSegment(socket.get(), traffic_class, pending));
    if (pending) {
      return std::unique_ptr<Connection>();
    }
    return std::unique_ptr<Connection>(std::make_unique<ShmConnection>(
        std::move(socket), std::move(segment), traffic_class, false));
  }

 private:
  const UniqueFd listener_;
  const std::string name_;
};

Result<std::unique_ptr<Transport>> Open(const TransportSettings& /*settings*/) {
  uint64_t random[2] = {};
  if (::getrandom(random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    return ErrnoError(errno, "getrandom");
  }
  const std::string name = fmt::format("heddle-{:016x}{:016x}", random[0], random[1]);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return ErrnoError(errno, "socket");
  }
  sockaddr_un address{};
  const socklen_t size = ShmTransport::Name(name, address);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), 512) != 0) {
    return ErrnoError(errno, "local socket");
  }
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(std::move(socket), name));
}

const RegisteredTransport kRegistered(kName, &Open);

}  // namespace
}  // namespace heddle::comm
