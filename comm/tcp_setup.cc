#include "comm/tcp_setup.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/log.h"
#include "comm/discovery.h"
#include "comm/tcp_connection.h"
#include "comm/tcp_socket.h"
#include "comm/tcp_stripes.h"

namespace heddle::comm {

namespace {

/// To reach the door: less than a handshake's bound, so that one socket still makes a connection.
constexpr long kDoorNanoseconds = 500'000'000;
constexpr size_t kMostStrangers = 64;
constexpr double kBytesPerSecondEach = 10e9 / 8;

struct TcpHello {
  static constexpr uint32_t kMagic = 0x31435448;  // "HTC1"
  uint32_t magic = kMagic;
  uint16_t streams = 1;
  uint16_t port = 0;  ///< Of the acceptor's door.
  Digest token{};     ///< What it lets in; random.
};
static_assert(sizeof(TcpHello) == 40);

/// The first bytes of each further socket.
struct StripeHello {
  Digest token{};
  uint32_t number = 0;  ///< From 1.
};
static_assert(sizeof(StripeHello) == 36);

/// "host:port", numeric, of a socket's peer.
Result<std::string> PeerAddress(int socket, uint16_t port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
    return UnavailableError("its address is not known");
  }
  return fmt::format("{}:{}", host.data(), port);
}

class TcpSetup final : public ConnectionSetup {
 public:
  TcpSetup(UniqueFd socket, bool dialled, int streams, std::string own)
      : socket_(std::move(socket)),
        dialled_(dialled),
        own_(std::move(own)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    hello_.streams = static_cast<uint16_t>(streams);
  }

  int fd() const override { return epoll_.get(); }
  Result<std::unique_ptr<Connection>> Advance() override;

 private:
  enum class Step : uint8_t { kStart, kHello, kDial, kDoor };
  /// A further socket that is not one of the connection's yet.
  struct Coming {
    UniqueFd socket;
    StripeHello hello;
    size_t have = 0;
  };

  Status Start();
  Status OpenDoor();
  Result<bool> ReadSocket(std::span<std::byte> message);
  Status SendSocket(std::span<const std::byte> message);
  Status Dial();
  /// Whether all sockets are there, or none will be.
  Result<bool> TakeDialled();
  Result<bool> TakeComing();
  void Accept();
  /// What one says; false: it is a stranger, or has gone.
  bool Read(Coming& coming);
  Result<std::unique_ptr<Connection>> Finish();
  Status Watch(int fd, uint32_t events) const;

  UniqueFd socket_;
  const bool dialled_;
  const std::string own_;
  const UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd door_;
  TcpHello hello_;
  TcpHello peer_;
  size_t have_ = 0;  ///< Bytes of the message that is being read.
  Step step_ = Step::kStart;
  size_t streams_ = 1;  ///< Agreed.
  std::byte told_{};    ///< How many sockets the dialler has opened; 0: not told yet.
  std::vector<UniqueFd> further_;
  std::list<Coming> coming_;
};

Status TcpSetup::Watch(int fd, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status::Ok()
                                                                   : ErrnoError(errno, "epoll");
}

Result<bool> TcpSetup::ReadSocket(std::span<std::byte> message) {
  const auto rest = message.subspan(have_);
  const ssize_t got = ::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return false;
  }
  if (got <= 0) {
    return UnavailableError("the peer closed the connection");
  }
  have_ += static_cast<size_t>(got);
  const bool whole = have_ == message.size();
  have_ = whole ? 0 : have_;
  return whole;
}

Status TcpSetup::SendSocket(std::span<const std::byte> message) {
  // Smaller than any socket's buffer, so it goes whole or not at all.
  const ssize_t sent =
      ::send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(message.size())
             ? Status::Ok()
             : UnavailableError("{}", ErrnoError(errno, "write").message());
}

Status TcpSetup::OpenDoor() {
  HEDDLE_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(own_.substr(0, own_.rfind(':'))));
  const std::string& address = listener.address;
  hello_.port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  hello_.token = MakeNonce();
  door_ = std::move(listener.socket);
  return Watch(door_.get(), EPOLLIN);
}

Status TcpSetup::Start() {
  if (!epoll_.valid()) {
    return ErrnoError(EMFILE, "epoll_create1");
  }
  if (hello_.streams > 1 && !dialled_) {
    const Status opened = OpenDoor();
    if (!opened.ok()) {
      LogInfo("one socket a connection: {}", opened.message());
      hello_.streams = 1;
    }
  }
  HEDDLE_RETURN_IF_ERROR(Watch(socket_.get(), EPOLLIN | EPOLLRDHUP));
  return SendSocket(std::as_bytes(std::span(&hello_, 1)));
}

Result<std::unique_ptr<Connection>> TcpSetup::Advance() {
  if (step_ == Step::kStart) {
    HEDDLE_RETURN_IF_ERROR(Start());
    step_ = Step::kHello;
  }
  if (step_ == Step::kHello) {
    HEDDLE_ASSIGN_OR_RETURN(const bool whole,
                            ReadSocket(std::as_writable_bytes(std::span(&peer_, 1))));
    if (!whole) {
      return std::unique_ptr<Connection>();
    }
    if (peer_.magic != TcpHello::kMagic || peer_.streams == 0) {
      return DataLossError("its TCP parameters have another form");
    }
    streams_ = std::min(hello_.streams, peer_.streams);
    if (streams_ == 1) {
      return Finish();
    }
    if (dialled_) {
      HEDDLE_RETURN_IF_ERROR(Dial());
    }
    step_ = dialled_ ? Step::kDial : Step::kDoor;
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool there, dialled_ ? TakeDialled() : TakeComing());
  return there ? Finish() : Result<std::unique_ptr<Connection>>(std::unique_ptr<Connection>());
}

Status TcpSetup::Dial() {
  timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  const itimerspec timing{.it_interval = {},
                          .it_value = {.tv_sec = 0, .tv_nsec = kDoorNanoseconds}};
  if (!timer_.valid() || ::timerfd_settime(timer_.get(), 0, &timing, nullptr) != 0) {
    return ErrnoError(errno, "timerfd");
  }
  HEDDLE_RETURN_IF_ERROR(Watch(timer_.get(), EPOLLIN));
  HEDDLE_ASSIGN_OR_RETURN(const std::string door, PeerAddress(socket_.get(), peer_.port));
  for (uint32_t number = 1; number < streams_; ++number) {
    auto socket = DialTcp(own_, door);
    if (!socket.ok() || !Watch(socket->get(), EPOLLOUT).ok()) {
      coming_.clear();
      streams_ = 1;
      return Status::Ok();
    }
    coming_.push_back({.socket = *std::move(socket),
                       .hello = {.token = peer_.token, .number = number},
                       .have = 0});
  }
  return Status::Ok();
}

Result<bool> TcpSetup::TakeDialled() {
  uint64_t late = 0;
  bool failed = streams_ == 1 || ::read(timer_.get(), &late, sizeof(late)) == sizeof(late);
  further_.resize(streams_ - 1);
  coming_.remove_if([&](Coming& coming) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(coming.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    const ssize_t sent = ::send(coming.socket.get(), &coming.hello, sizeof(coming.hello),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (error == 0 && sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) {
      return false;
    }
    failed = failed || error != 0 || sent != sizeof(coming.hello);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, coming.socket.get(), nullptr);
    further_[coming.hello.number - 1] = std::move(coming.socket);
    return true;
  });
  if (!failed && !coming_.empty()) {
    return false;
  }
  if (failed) {
    LogInfo("one socket a connection: the peer's further ones cannot be reached");
    further_.clear();
    streams_ = 1;
  }
  const auto count = static_cast<std::byte>(streams_);
  HEDDLE_RETURN_IF_ERROR(SendSocket(std::span(&count, 1)));
  return true;
}

void TcpSetup::Accept() {
  for (;;) {
    UniqueFd socket(::accept4(door_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      return;
    }
    if (coming_.size() < kMostStrangers && Watch(socket.get(), EPOLLIN | EPOLLRDHUP).ok()) {
      coming_.push_back({.socket = std::move(socket), .hello = {}, .have = 0});
    }
  }
}

bool TcpSetup::Read(Coming& coming) {
  const auto rest = std::as_writable_bytes(std::span(&coming.hello, 1)).subspan(coming.have);
  const ssize_t got = ::recv(coming.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got <= 0) {
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }
  coming.have += static_cast<size_t>(got);
  if (coming.have < sizeof(StripeHello)) {
    return true;
  }
  const uint32_t number = coming.hello.number;
  if (!SameDigest(coming.hello.token, hello_.token) || number == 0 || number >= streams_ ||
      further_[number - 1].valid()) {
    return false;
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, coming.socket.get(), nullptr);
  further_[number - 1] = std::move(coming.socket);
  return false;  // No stranger, but no longer coming.
}

Result<bool> TcpSetup::TakeComing() {
  if (told_ == std::byte{0}) {
    HEDDLE_RETURN_IF_ERROR(ReadSocket(std::span(&told_, 1)).status());
    if (told_ != std::byte{0} && told_ != std::byte{1} &&
        told_ != static_cast<std::byte>(streams_)) {
      return DataLossError("{} sockets where {} were agreed", static_cast<int>(told_), streams_);
    }
  }
  if (told_ == std::byte{1}) {
    streams_ = 1;
    further_.clear();
    return true;
  }
  further_.resize(streams_ - 1);
  Accept();
  coming_.remove_if([this](Coming& coming) { return !Read(coming); });
  return told_ != std::byte{0} && std::all_of(further_.begin(), further_.end(),
                                              [](const UniqueFd& fd) { return fd.valid(); });
}

Result<std::unique_ptr<Connection>> TcpSetup::Finish() {
  coming_.clear();
  if (streams_ == 1) {
    return MakeTcpConnection(std::move(socket_), Lane::kBulk);
  }
  std::vector<UniqueFd> sockets;
  sockets.push_back(std::move(socket_));
  std::move(further_.begin(), further_.end(), std::back_inserter(sockets));
  return MakeTcpStripes(std::move(sockets));
}

/// One socket, and nothing to agree on.
class PlainSetup final : public ConnectionSetup {
 public:
  PlainSetup(UniqueFd socket, Lane lane)
      : socket_(std::move(socket)),
        fd_(socket_.get()),
        lane_(lane) {}
  int fd() const override { return fd_; }
  Result<std::unique_ptr<Connection>> Advance() override {
    return MakeTcpConnection(std::move(socket_), lane_);
  }

 private:
  UniqueFd socket_;
  const int fd_;
  const Lane lane_;
};

}  // namespace

int TcpStreamsFor(const std::string& host) {
  for (const NetworkInterface& interface : FindInterfaces()) {
    const auto& ips = interface.ips;
    if (interface.kind == InterfaceKind::kPhysical &&
        std::find(ips.begin(), ips.end(), host) != ips.end()) {
      const double streams = std::ceil(interface.bytes_per_second / kBytesPerSecondEach);
      return static_cast<int>(std::clamp(streams, 1.0, static_cast<double>(kMostStripes)));
    }
  }
  return 1;
}

std::unique_ptr<ConnectionSetup> MakeTcpSetup(
    UniqueFd socket, Lane lane, bool dialled, int streams, std::string own) {
  if (lane == Lane::kUrgent) {
    return std::make_unique<PlainSetup>(std::move(socket), lane);
  }
  return std::make_unique<TcpSetup>(std::move(socket), dialled, streams, std::move(own));
}

}  // namespace heddle::comm
