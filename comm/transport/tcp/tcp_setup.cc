#include "comm/transport/tcp/tcp_setup.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <list>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>

#include "comm/links/discovery.h"
#include "comm/transport/ip_socket.h"
#include "comm/transport/tcp/tcp_connection.h"
#include "comm/transport/tcp/tcp_setup_base.h"

namespace heddle::comm {

namespace {

/// To reach the listener: longer than the kernel takes to ask again for a connection (1 s), shorter
/// than a handshake's bound, so that one socket still makes a connection.
constexpr Duration kDialTime = std::chrono::milliseconds(1200);
/// For what was sent to the listener to come: once more the kernel's first try again.
constexpr Duration kComingTime = std::chrono::milliseconds(1600);
constexpr size_t kMaxComing = 64;
constexpr double kBytesPerSecondEach = 10e9 / 8;

class DiallerSetup final : public TcpSetup {
 public:
  using TcpSetup::TcpSetup;
  Result<std::unique_ptr<Connection>> Advance() override;

 private:
  enum class Step : uint8_t { kStart, kHello, kDial, kAnswer };

  Status Dial();
  /// Whether all are open, or none will be.
  bool OpenAll();

  Step step_ = Step::kStart;
  TcpHello peer_;
  size_t streams_ = 1;   ///< Agreed.
  std::string failure_;  ///< Why the listener cannot be reached.
  std::list<Coming> coming_;
  std::vector<UniqueFd> further_;
  std::byte opened_{1};
  std::byte answer_{};
};

Result<std::unique_ptr<Connection>> DiallerSetup::Advance() {
  if (step_ == Step::kStart) {
    HEDDLE_RETURN_IF_ERROR(Start());
    HEDDLE_RETURN_IF_ERROR(Send(
        TcpHello{.streams = static_cast<uint16_t>(options().streams), .port = 0, .nonce = {}}));
    step_ = Step::kHello;
  }
  if (step_ == Step::kHello) {
    HEDDLE_ASSIGN_OR_RETURN(const bool whole, ReceiveHello(peer_));
    if (!whole) {
      return std::unique_ptr<Connection>();
    }
    if (peer_.streams > options().streams) {
      return DataLossError("{} sockets where {} were offered", peer_.streams, options().streams);
    }
    streams_ = peer_.streams;
    if (streams_ == 1) {
      return Finish({});
    }
    HEDDLE_RETURN_IF_ERROR(Dial());
    step_ = Step::kDial;
  }
  if (step_ == Step::kDial) {
    HEDDLE_RETURN_IF_ERROR(ReceiveNothing());
    if (!OpenAll()) {
      return std::unique_ptr<Connection>();
    }
    opened_ = static_cast<std::byte>(failure_.empty() ? streams_ : 1);
    HEDDLE_RETURN_IF_ERROR(Send(opened_));
    step_ = Step::kAnswer;
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool whole, Receive(std::span(&answer_, 1)));
  if (!whole) {
    return std::unique_ptr<Connection>();
  }
  if (answer_ != std::byte{1} && answer_ != opened_) {
    return DataLossError("{} sockets where {} are open", static_cast<int>(answer_),
                         static_cast<int>(opened_));
  }
  if (answer_ == std::byte{1}) {
    NoteOneSocket(streams_, failure_.empty() ? "the others did not arrive there" : failure_);
    further_.clear();
  }
  return Finish(std::move(further_));
}

Status DiallerSetup::Dial() {
  HEDDLE_RETURN_IF_ERROR(SetTimer(kDialTime));
  const std::string listener = fmt::format("{}:{}", PeerHost(socket()), peer_.port);
  further_.resize(streams_ - 1);
  for (uint32_t number = 1; number < streams_; ++number) {
    auto dialled = DialTcp(options().own, listener);
    const Status status = dialled.ok() ? Watch(*dialled, EPOLLOUT) : dialled.status();
    if (!status.ok()) {
      failure_ = status.message();
      return Status::Ok();
    }
    coming_.push_back(
        {.socket = *std::move(dialled),
         .hello = {.proof = ProveStripe(options().key, peer_.nonce, number), .number = number},
         .have = 0});
  }
  return Status::Ok();
}

bool DiallerSetup::OpenAll() {
  for (auto next = coming_.begin(); next != coming_.end() && failure_.empty();) {
    const auto coming = next++;
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(coming->socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    const ssize_t sent = error != 0 ? -1
                                    : ::send(coming->socket.get(), &coming->hello,
                                             sizeof(coming->hello), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == sizeof(coming->hello)) {
      Unwatch(coming->socket);
      further_[coming->hello.number - 1] = std::move(coming->socket);
      coming_.erase(coming);
    } else if (error != 0 || (errno != EAGAIN && errno != EINTR && errno != ENOTCONN)) {
      failure_ = ErrnoError(error != 0 ? error : errno, "its listener").message();
    }
  }
  if (failure_.empty() && !coming_.empty() && IsLate()) {
    failure_ = "its listener was not reached in time";
  }
  if (!failure_.empty()) {
    coming_.clear();
    further_.clear();
  }
  return coming_.empty();
}

class AcceptorSetup final : public TcpSetup {
 public:
  using TcpSetup::TcpSetup;
  Result<std::unique_ptr<Connection>> Advance() override;

 private:
  enum class Step : uint8_t { kStart, kHello, kListen };

  /// Answers the dialler's hello; agrees to one socket where it cannot listen.
  Status Answer(const TcpHello& peer);
  void TakeKnocks();
  /// False: it is a stranger, has gone, or is the connection's now.
  bool IsStillComing(Coming& coming);

  Step step_ = Step::kStart;
  TcpHello peer_;
  size_t streams_ = 1;  ///< Agreed.
  UniqueFd listener_;
  Digest nonce_{};
  std::byte opened_{};   ///< What the dialler says; 0: nothing yet.
  std::string failure_;  ///< Why the others will not come.
  std::list<Coming> coming_;
  std::vector<UniqueFd> further_;
};

Result<std::unique_ptr<Connection>> AcceptorSetup::Advance() {
  if (step_ == Step::kStart) {
    HEDDLE_RETURN_IF_ERROR(Start());
    step_ = Step::kHello;
  }
  if (step_ == Step::kHello) {
    HEDDLE_ASSIGN_OR_RETURN(const bool whole, ReceiveHello(peer_));
    if (!whole) {
      return std::unique_ptr<Connection>();
    }
    HEDDLE_RETURN_IF_ERROR(Answer(peer_));
    if (streams_ == 1) {
      return Finish({});
    }
    step_ = Step::kListen;
  }
  if (opened_ != std::byte{0}) {
    HEDDLE_RETURN_IF_ERROR(ReceiveNothing());
  } else {
    HEDDLE_RETURN_IF_ERROR(Receive(std::span(&opened_, 1)).status());
    if (opened_ > std::byte{1} && opened_ != static_cast<std::byte>(streams_)) {
      return DataLossError("{} sockets where {} were agreed", static_cast<int>(opened_), streams_);
    }
  }
  TakeKnocks();
  const bool all = std::all_of(further_.begin(), further_.end(),
                               [](const UniqueFd& socket) { return socket.valid(); });
  if (failure_.empty() && IsLate()) {
    failure_ = "the others did not come in time";
  }
  if (opened_ == std::byte{0} || (opened_ != std::byte{1} && !all && failure_.empty())) {
    return std::unique_ptr<Connection>();
  }
  const bool alone = opened_ == std::byte{1} || !all;
  if (alone) {
    NoteOneSocket(streams_,
                  opened_ == std::byte{1} ? "it cannot reach this worker's listener" : failure_);
    further_.clear();
  }
  HEDDLE_RETURN_IF_ERROR(Send(static_cast<std::byte>(alone ? 1 : streams_)));
  return Finish(std::move(further_));
}

Status AcceptorSetup::Answer(const TcpHello& peer) {
  TcpHello answer{.streams = static_cast<uint16_t>(std::min<int>(options().streams, peer.streams)),
                  .port = 0,
                  .nonce = {}};
  if (answer.streams > 1) {
    const std::string& own = options().own;
    auto listener = ListenTcp(own.substr(0, own.rfind(':')));
    const Status status = listener.ok() ? Watch(listener->socket, EPOLLIN) : listener.status();
    if (status.ok()) {
      const std::string& address = listener->address;
      answer.port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
      answer.nonce = nonce_ = MakeNonce();
      listener_ = std::move(listener->socket);
    } else {
      NoteOneSocket(answer.streams, status.message());
      answer.streams = 1;
    }
  }
  streams_ = answer.streams;
  further_.resize(streams_ - 1);
  HEDDLE_RETURN_IF_ERROR(Send(answer));
  return streams_ > 1 ? SetTimer(kComingTime) : Status::Ok();
}

void AcceptorSetup::TakeKnocks() {
  while (listener_.valid()) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        failure_ = ErrnoError(error, "accept").message();
        listener_.Reset();  // It would stay ready.
      }
      break;
    }
    if (PeerHost(socket.get()) != PeerHost(TcpSetup::socket()) ||
        !Watch(socket, EPOLLIN | EPOLLRDHUP).ok()) {
      continue;
    }
    if (coming_.size() >= kMaxComing) {  // Whoever proved nothing yet gives way.
      coming_.pop_front();
    }
    coming_.push_back({.socket = std::move(socket), .hello = {}, .have = 0});
  }
  coming_.remove_if([this](Coming& coming) { return !IsStillComing(coming); });
}

bool AcceptorSetup::IsStillComing(Coming& coming) {
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
  if (number > 0 && number < streams_ && !further_[number - 1].valid() &&
      SameDigest(coming.hello.proof, ProveStripe(options().key, nonce_, number))) {
    Unwatch(coming.socket);
    further_[number - 1] = std::move(coming.socket);
  }
  return false;
}

/// One socket, and nothing to agree on.
class PlainSetup final : public ConnectionSetup {
 public:
  PlainSetup(UniqueFd socket, TrafficClass traffic_class)
      : socket_(std::move(socket)),
        fd_(socket_.get()),
        traffic_class_(traffic_class) {}
  int fd() const override { return fd_; }
  Result<std::unique_ptr<Connection>> Advance() override {
    return MakeTcpConnection(std::move(socket_), traffic_class_);
  }

 private:
  UniqueFd socket_;
  const int fd_;
  const TrafficClass traffic_class_;
};

}  // namespace

int TcpStreamsFor(const std::string& host) {
  for (const NetworkInterface& interface : FindInterfaces()) {
    const auto& ips = interface.ips;
    if (interface.kind == InterfaceKind::kPhysical &&
        std::find(ips.begin(), ips.end(), host) != ips.end()) {
      const double streams = std::ceil(interface.bytes_per_second / kBytesPerSecondEach);
      return static_cast<int>(std::clamp(streams, 1.0, static_cast<double>(kMaxStripes)));
    }
  }
  return 1;
}

std::unique_ptr<ConnectionSetup> MakeTcpSetup(UniqueFd socket,
                                              TrafficClass traffic_class,
                                              bool dialled,
                                              const TcpSetupOptions& options) {
  if (traffic_class == TrafficClass::kUrgent) {
    return std::make_unique<PlainSetup>(std::move(socket), traffic_class);
  }
  if (dialled) {
    return std::make_unique<DiallerSetup>(std::move(socket), options);
  }
  return std::make_unique<AcceptorSetup>(std::move(socket), options);
}

}  // namespace heddle::comm
