#include "comm/transport/verbs/verbs_setup.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <infiniband/verbs.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "comm/transport/ip_socket.h"
#include "comm/transport/verbs/verbs_connection.h"
#include "comm/transport/verbs/verbs_iwarp.h"

namespace heddle::comm {

namespace {

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
      hello.first_packet > kNumberMask || hello.ring_bytes != RingBytes(traffic_class) ||
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

  int fd() const override { return epoll_.get(); }
  Result<std::unique_ptr<Connection>> Advance() override;

 private:
  enum class Step : uint8_t { kStart, kHello, kManager, kProbe, kReady, kDone };

  bool iwarp() const { return device_->port().kind == RdmaKind::kIwarp; }
  /// One step; false: there is something to wait for.
  Result<bool> Go();
  Status Begin();
  Status MakeStream();
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
  Status Watch(int fd);

  const std::shared_ptr<VerbsDevice> device_;
  UniqueFd socket_;
  const TrafficClass traffic_class_;
  const bool dialled_;
  const UniqueFd epoll_;
  UniqueFd timer_;  ///< iWARP's dialler: of the next probe.
  Step step_ = Step::kStart;
  VerbsHello peer_;
  std::unique_ptr<VerbsStream> stream_;
  std::unique_ptr<IwarpConnector> connector_;  ///< iWARP, once the peer is known; ends first.
  size_t have_ = 0;                            ///< Bytes of the message that is being read.
};

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
  connector_.reset();  // Before the connection may take its channel away.
  TuneTcp(socket_.get(), traffic_class_);
  HEDDLE_RETURN_IF_ERROR(stream_->queue_pair().Watch(socket_.get()));
  return std::unique_ptr<Connection>(
      std::make_unique<VerbsConnection>(std::move(stream_), std::move(socket_)));
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
      HEDDLE_ASSIGN_OR_RETURN(const bool more, connector_->Advance());
      if (!more) {
        HEDDLE_RETURN_IF_ERROR(CheckSocket());
      } else if (connector_->established()) {
        step_ = Step::kProbe;
        HEDDLE_RETURN_IF_ERROR(dialled_ ? SendProbe() : Status::Ok());
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
  HEDDLE_RETURN_IF_ERROR(MakeStream());
  return SendHello(stream_->Hello());
}

Status VerbsSetup::MakeStream() {
  HEDDLE_RETURN_IF_ERROR(device_->CheckPort());
  stream_ = std::make_unique<VerbsStream>(device_, traffic_class_);
  HEDDLE_RETURN_IF_ERROR(stream_->Allocate());
  if (!iwarp()) {
    HEDDLE_RETURN_IF_ERROR(stream_->MakeQueuePair());
  }
  return Watch(stream_->queue_pair().completion_fd());
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
  if (!dialled_) {
    HEDDLE_RETURN_IF_ERROR(MakeStream());
  }
  VerbsHello hello = stream_->Hello();
  if (iwarp()) {
    connector_ = std::make_unique<IwarpConnector>(*stream_, peer_, dialled_);
    HEDDLE_RETURN_IF_ERROR(dialled_ ? connector_->Connect(socket_.get())
                                    : connector_->Listen(socket_.get(), hello));
    HEDDLE_RETURN_IF_ERROR(Watch(connector_->fd()));
  } else {
    HEDDLE_RETURN_IF_ERROR(stream_->Join(peer_));
  }
  if (!dialled_) {
    return SendHello(hello);
  }
  return iwarp() ? Status::Ok() : SendProbe();
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
  for (bool more = connector_ != nullptr; more;) {
    HEDDLE_ASSIGN_OR_RETURN(more, connector_->Advance());
  }
  stream_->queue_pair().TakeEvent();
  HEDDLE_ASSIGN_OR_RETURN(const bool probed, stream_->Probed());
  uint64_t due = 0;
  if (timer_.valid() && ::read(timer_.get(), &due, sizeof(due)) == sizeof(due) && !probed) {
    HEDDLE_RETURN_IF_ERROR(stream_->SendControl(ControlMessage::kProbe));
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
  return stream_->SendControl(ControlMessage::kProbe);
}

Result<bool> VerbsSetup::ReadProbe() {
  HEDDLE_ASSIGN_OR_RETURN(const bool probed, TakeNews());
  if (!probed) {
    HEDDLE_RETURN_IF_ERROR(CheckSocket());
    return false;
  }
  if (!dialled_) {
    HEDDLE_RETURN_IF_ERROR(stream_->SendControl(ControlMessage::kProbe));
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

}  // namespace

std::unique_ptr<ConnectionSetup> MakeVerbsSetup(std::shared_ptr<VerbsDevice> device,
                                                UniqueFd socket,
                                                TrafficClass traffic_class,
                                                bool dialled) {
  return std::make_unique<VerbsSetup>(std::move(device), std::move(socket), traffic_class, dialled);
}

}  // namespace heddle::comm
