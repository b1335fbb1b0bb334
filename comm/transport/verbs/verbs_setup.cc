#include "comm/transport/verbs/verbs_setup.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "comm/transport/ip_socket.h"
#include "comm/transport/verbs/verbs_connection.h"

namespace heddle::comm {

namespace {

constexpr int kResolveMilliseconds = 1000;
constexpr int kBacklog = 4;
/// iWARP shares its ports with TCP. librdmacm would choose one without regard to TCP's and fail
/// when it listens, or worse, when it connects; one that TCP has free may be librdmacm's.
constexpr int kPortTries = 8;
constexpr uint32_t kNumberMask = 0xFFFFFF;  // Queue pairs and packets have 24 bits.
constexpr uint32_t kReceivesMin = 32;
/// iWARP: how often the dialler repeats its probe until the acceptor's comes. Linux's siw (6.12)
/// answers a connection request before it watches the connection for RDMA, so that what comes in
/// between lies unread until more comes. Fewer than kReceivesMin in a handshake's time.
constexpr long kProbeNanoseconds = 100'000'000;

Status CheckHello(const VerbsHello& hello, RdmaKind own_kind, TrafficClass traffic_class) {
  if (hello.magic != VerbsHello::kMagic || hello.zero != 0) {
    return DataLossError("its RDMA parameters have another form");
  }
  if (hello.refusal.front() != '\0') {
    std::string why(hello.refusal.data(), ::strnlen(hello.refusal.data(), hello.refusal.size()));
    std::replace_if(
        why.begin(), why.end(),
        [](char letter) { return std::isprint(static_cast<unsigned char>(letter)) == 0; }, '?');
    return UnavailableError("at the peer: {}", why);
  }
  if (hello.kind != own_kind) {
    return UnavailableError("the peer's RDMA is {}, ours {}", RdmaKindName(hello.kind),
                            RdmaKindName(own_kind));
  }
  if (hello.memory != VerbsHello::kHostMemory || hello.mtu < IBV_MTU_256 ||
      hello.mtu > IBV_MTU_4096 || hello.queue_pair > kNumberMask ||
      hello.first_packet > kNumberMask ||
      hello.ring_bytes != VerbsConnection::RingBytes(traffic_class) ||
      hello.ring_address > UINT64_MAX - hello.ring_bytes || hello.receives < kReceivesMin) {
    return DataLossError("its RDMA parameters are out of range");
  }
  return Status::Ok();
}

class VerbsSetup final : public ConnectionSetup {
 public:
  VerbsSetup(std::shared_ptr<VerbsDevice> device,
             UniqueFd socket,
             TrafficClass traffic_class,
             bool dialled)
      : device_(std::move(device)),
        socket_(std::move(socket)),
        traffic_class_(traffic_class),
        dialled_(dialled),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~VerbsSetup() override;

  int fd() const override { return epoll_.get(); }
  Result<std::unique_ptr<Connection>> Advance() override;

 private:
  enum class Step : uint8_t { kStart, kHello, kManager, kProbe, kReady, kDone };

  bool iwarp() const { return device_->port().kind == RdmaKind::kIwarp; }
  /// One step; false: there is something to wait for.
  Result<bool> Go();
  Status Begin();
  Status MakeConnection();
  Status Answer();
  Status AnswerOrRefuse();
  Status SendHello(const VerbsHello& hello);
  Result<bool> ReadSocket(std::span<std::byte> message);
  Status CheckSocket() const;
  Result<bool> ReadProbe();
  /// Takes in all that may have made `fd` ready once the queue pairs are joined, save the socket:
  /// what is left there makes it ready again at once. Returns whether the peer's probe has come.
  Result<bool> TakeNews();
  Status SendProbe();
  Status OpenManager();
  Status MakeIdentifier();
  /// Makes `call`, which binds the identifier to `own`, with a port that TCP has free.
  Status WithFreePort(std::string_view what,
                      sockaddr_storage& own,
                      const std::function<int()>& call);
  Status Resolve();
  Status Listen();
  Result<bool> ReadManager();
  Status OnManager(rdma_cm_event_type type, rdma_cm_id* id);
  Status Watch(int fd);

  const std::shared_ptr<VerbsDevice> device_;
  UniqueFd socket_;
  const TrafficClass traffic_class_;
  const bool dialled_;
  const UniqueFd epoll_;
  UniqueFd timer_;  ///< iWARP's dialler: of the next probe.
  Step step_ = Step::kStart;
  std::unique_ptr<VerbsConnection> connection_;
  VerbsHello peer_;
  Digest token_{};
  size_t have_ = 0;                        ///< Bytes of the message that is being read.
  rdma_event_channel* channel_ = nullptr;  ///< Owned until the connection has it, like...
  rdma_cm_id* id_ = nullptr;               ///< ...the dialler's. The acceptor's listens, and
  bool handed_over_ = false;               ///< stays the setup's.
};

VerbsSetup::~VerbsSetup() {
  const bool identifier_stays = !dialled_ || !handed_over_;
  if (id_ != nullptr && identifier_stays) {
    ::rdma_destroy_id(id_);
  }
  connection_.reset();
  if (channel_ != nullptr && !handed_over_) {
    ::rdma_destroy_event_channel(channel_);
  }
}

Status VerbsSetup::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status::Ok()
                                                                   : ErrnoError(errno, "epoll");
}

Result<std::unique_ptr<Connection>> VerbsSetup::Advance() {
  while (step_ != Step::kDone) {
    HEDDLE_ASSIGN_OR_RETURN(const bool moved, Go());
    if (!moved) {
      return std::unique_ptr<Connection>();
    }
  }
  if (id_ != nullptr && !dialled_) {  // Before the connection may take its channel away.
    ::rdma_destroy_id(std::exchange(id_, nullptr));
  }
  HEDDLE_RETURN_IF_ERROR(connection_->Start(std::move(socket_)));
  return std::unique_ptr<Connection>(std::move(connection_));
}

Result<bool> VerbsSetup::Go() {
  switch (step_) {
    case Step::kStart:
      HEDDLE_RETURN_IF_ERROR(Begin());
      step_ = Step::kHello;
      return true;
    case Step::kHello: {
      HEDDLE_ASSIGN_OR_RETURN(const bool whole,
                              ReadSocket(std::as_writable_bytes(std::span(&peer_, 1))));
      if (whole) {
        HEDDLE_RETURN_IF_ERROR(AnswerOrRefuse());
        step_ = iwarp() ? Step::kManager : Step::kProbe;
      }
      return whole;
    }
    case Step::kManager: {
      HEDDLE_ASSIGN_OR_RETURN(const bool more, ReadManager());
      if (!more) {
        HEDDLE_RETURN_IF_ERROR(CheckSocket());
      }
      return more;
    }
    case Step::kProbe:
      return ReadProbe();
    case Step::kReady: {
      HEDDLE_RETURN_IF_ERROR(TakeNews().status());
      std::byte ready{};
      HEDDLE_ASSIGN_OR_RETURN(const bool whole, ReadSocket(std::span(&ready, 1)));
      step_ = whole ? Step::kDone : step_;
      return whole;
    }
    case Step::kDone:
      break;
  }
  return true;
}

Status VerbsSetup::Begin() {
  if (!epoll_.valid()) {
    return ErrnoError(EMFILE, "epoll_create1");
  }
  HEDDLE_RETURN_IF_ERROR(Watch(socket_.get()));
  if (!dialled_) {
    return Status::Ok();  // The acceptor answers, so that it can say why not.
  }
  HEDDLE_RETURN_IF_ERROR(MakeConnection());
  return SendHello(connection_->Hello());
}

Status VerbsSetup::MakeConnection() {
  HEDDLE_RETURN_IF_ERROR(device_->CheckPort());
  HEDDLE_ASSIGN_OR_RETURN(connection_, VerbsConnection::Create(device_, traffic_class_));
  if (!iwarp()) {
    HEDDLE_RETURN_IF_ERROR(connection_->MakeQueuePair());
  }
  return Watch(connection_->completion_fd());
}

Status VerbsSetup::AnswerOrRefuse() {
  const Status status = Answer();
  if (!status.ok() && !dialled_) {
    VerbsHello refusal;
    refusal.kind = device_->port().kind;
    std::strncpy(refusal.refusal.data(), status.message().c_str(), refusal.refusal.size() - 1);
    SendHello(refusal).IgnoreError("it is being refused");
  }
  return status;
}

// The peer's parameters are here.
Status VerbsSetup::Answer() {
  HEDDLE_RETURN_IF_ERROR(CheckHello(peer_, device_->port().kind, traffic_class_));
  if (dialled_) {
    if (iwarp()) {
      return Resolve();
    }
    HEDDLE_RETURN_IF_ERROR(connection_->Join(peer_));
    return SendProbe();
  }
  HEDDLE_RETURN_IF_ERROR(MakeConnection());
  VerbsHello hello = connection_->Hello();
  if (iwarp()) {
    HEDDLE_RETURN_IF_ERROR(Listen());
    hello.cm_port = ntohs(::rdma_get_src_port(id_));
    hello.token = token_ = MakeNonce();
  } else {
    HEDDLE_RETURN_IF_ERROR(connection_->Join(peer_));
  }
  return SendHello(hello);
}

Status VerbsSetup::SendHello(const VerbsHello& hello) {
  // Smaller than any socket's buffer, so it goes whole or not at all.
  const ssize_t sent = ::send(socket_.get(), &hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(sizeof(hello))
             ? Status::Ok()
             : UnavailableError("{}", ErrnoError(errno, "write").message());
}

Result<bool> VerbsSetup::ReadSocket(std::span<std::byte> message) {
  const auto rest = message.subspan(have_);
  const ssize_t got = ::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return false;
  }
  if (got <= 0) {
    return UnavailableError("it gave up on RDMA");
  }
  have_ += static_cast<size_t>(got);
  const bool whole = have_ == message.size();
  have_ = whole ? 0 : have_;
  return whole;
}

// While the socket has nothing to say.
Status VerbsSetup::CheckSocket() const {
  std::byte unexpected{};
  const ssize_t got = ::recv(socket_.get(), &unexpected, 1, MSG_DONTWAIT | MSG_PEEK);
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? Status::Ok()
                                                        : UnavailableError("it gave up on RDMA");
}

Result<bool> VerbsSetup::TakeNews() {
  while (channel_ != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(const bool more, ReadManager());
    if (!more) {
      break;
    }
  }
  connection_->OnReady(connection_->completion_fd(), EPOLLIN);
  HEDDLE_ASSIGN_OR_RETURN(const bool probed, connection_->Probed());
  uint64_t due = 0;
  if (timer_.valid() && ::read(timer_.get(), &due, sizeof(due)) == sizeof(due) && !probed) {
    HEDDLE_RETURN_IF_ERROR(connection_->SendProbe());
  }
  return probed;
}

Status VerbsSetup::SendProbe() {
  if (iwarp()) {
    timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    const timespec every{.tv_sec = 0, .tv_nsec = kProbeNanoseconds};
    const itimerspec timing{.it_interval = every, .it_value = every};
    if (!timer_.valid() || ::timerfd_settime(timer_.get(), 0, &timing, nullptr) != 0) {
      return ErrnoError(errno, "timerfd");
    }
    HEDDLE_RETURN_IF_ERROR(Watch(timer_.get()));
  }
  return connection_->SendProbe();
}

Result<bool> VerbsSetup::ReadProbe() {
  HEDDLE_ASSIGN_OR_RETURN(const bool probed, TakeNews());
  if (!probed) {
    HEDDLE_RETURN_IF_ERROR(CheckSocket());
    return false;
  }
  if (!dialled_) {
    HEDDLE_RETURN_IF_ERROR(connection_->SendProbe());
    step_ = Step::kReady;
    return true;
  }
  const std::byte ready{1};
  if (::send(socket_.get(), &ready, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
    return UnavailableError("{}", ErrnoError(errno, "write").message());
  }
  step_ = Step::kDone;
  return true;
}

Status VerbsSetup::OpenManager() {
  channel_ = ::rdma_create_event_channel();
  if (channel_ == nullptr) {
    return ErrnoError(errno, "rdma_create_event_channel");
  }
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoError(errno, "fcntl");
  }
  HEDDLE_RETURN_IF_ERROR(Watch(channel_->fd));
  return MakeIdentifier();
}

Status VerbsSetup::MakeIdentifier() {
  return ::rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) == 0
             ? Status::Ok()
             : ErrnoError(errno, "rdma_create_id");
}

Status VerbsSetup::Listen() {
  HEDDLE_RETURN_IF_ERROR(OpenManager());
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  return WithFreePort("rdma_listen", own, [&] {
    const int bound = ::rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&own));
    return bound == 0 ? ::rdma_listen(id_, kBacklog) : bound;
  });
}

Status VerbsSetup::WithFreePort(std::string_view what,
                                sockaddr_storage& own,
                                const std::function<int()>& call) {
  for (int tries = 1;; ++tries) {
    HEDDLE_RETURN_IF_ERROR(ChooseTcpPort(own));
    if (call() == 0) {
      return Status::Ok();
    }
    if (errno != EADDRINUSE || tries == kPortTries) {
      return UnavailableError("{}", ErrnoError(errno, what).message());
    }
    ::rdma_destroy_id(std::exchange(id_, nullptr));
    HEDDLE_RETURN_IF_ERROR(MakeIdentifier());
  }
}

Status VerbsSetup::Resolve() {
  HEDDLE_RETURN_IF_ERROR(OpenManager());
  token_ = peer_.token;
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&other), &other_size) != 0) {
    return UnavailableError("{}", ErrnoError(errno, "getpeername").message());
  }
  // The port is at the same place for both families.
  reinterpret_cast<sockaddr_in*>(&other)->sin_port = htons(peer_.cm_port);
  return WithFreePort("rdma_resolve_addr", own, [&] {
    return ::rdma_resolve_addr(id_, reinterpret_cast<sockaddr*>(&own),
                               reinterpret_cast<sockaddr*>(&other), kResolveMilliseconds);
  });
}

Result<bool> VerbsSetup::ReadManager() {
  rdma_cm_event* event = nullptr;
  if (::rdma_get_cm_event(channel_, &event) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      return UnavailableError("{}", ErrnoError(errno, "rdma_get_cm_event").message());
    }
    return false;
  }
  const rdma_cm_event_type type = event->event;
  rdma_cm_id* const id = event->id;
  const int error = event->status;
  Digest token{};
  const rdma_conn_param& shown = event->param.conn;
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST && shown.private_data_len >= token.size()) {
    std::memcpy(token.data(), shown.private_data, token.size());
  }
  ::rdma_ack_cm_event(event);
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST && (handed_over_ || !SameDigest(token, token_))) {
    ::rdma_reject(id, nullptr, 0);  // A stranger found the port.
    ::rdma_destroy_id(id);
    return true;
  }
  if (error != 0) {
    return UnavailableError("{} ({})", ::rdma_event_str(type), error);
  }
  HEDDLE_RETURN_IF_ERROR(OnManager(type, id));
  return true;
}

Status VerbsSetup::OnManager(rdma_cm_event_type type, rdma_cm_id* id) {
  rdma_conn_param parameters{};
  parameters.private_data = token_.data();
  parameters.private_data_len = static_cast<uint8_t>(token_.size());
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  const auto checked = [](int result, const char* what) {
    return result == 0 ? Status::Ok() : UnavailableError("{}", ErrnoError(errno, what).message());
  };
  const auto join = [&]() -> Status {
    handed_over_ = true;
    HEDDLE_RETURN_IF_ERROR(connection_->MakeQueuePair(channel_, id));
    connection_->SetPeer(peer_);
    return Status::Ok();
  };
  switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return checked(::rdma_resolve_route(id, kResolveMilliseconds), "rdma_resolve_route");
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      HEDDLE_RETURN_IF_ERROR(join());
      return checked(::rdma_connect(id, &parameters), "rdma_connect");
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      HEDDLE_RETURN_IF_ERROR(join());
      parameters.private_data_len = 0;
      return checked(::rdma_accept(id, &parameters), "rdma_accept");
    case RDMA_CM_EVENT_ESTABLISHED:
      step_ = Step::kProbe;
      return dialled_ ? SendProbe() : Status::Ok();
    default:
      return UnavailableError("{}", ::rdma_event_str(type));
  }
}

}  // namespace

std::unique_ptr<ConnectionSetup> MakeVerbsSetup(std::shared_ptr<VerbsDevice> device,
                                                UniqueFd socket,
                                                TrafficClass traffic_class,
                                                bool dialled) {
  return std::make_unique<VerbsSetup>(std::move(device), std::move(socket), traffic_class, dialled);
}

}  // namespace heddle::comm
