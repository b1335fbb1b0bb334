#include "comm/endpoint/session.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace heddle::comm {

namespace {

template <typename T>
std::span<std::byte> Raw(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
template <typename T>
std::span<const std::byte> RawConst(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::unique_ptr<ConnectionSetup> BeginConnection(const Transport& transport,
                                                 size_t listener,
                                                 UniqueFd socket,
                                                 bool dialled,
                                                 const Identity& identity,
                                                 const Hello& hello,
                                                 const Challenge& challenge) {
  return transport.Begin(std::move(socket),
                         {.listener = listener,
                          .traffic_class = static_cast<TrafficClass>(hello.traffic_class),
                          .dialled = dialled,
                          .key = DeriveConnectionKey(identity.secret, hello, challenge),
                          .encrypted = identity.tls});
}

}  // namespace

void HandshakeSocket::Watch(uint32_t events, EventLoop::Handler handler) {
  watch_ = loop_.Add(socket_.get(), events, std::move(handler));
}

void HandshakeSocket::SetEvents(uint32_t events) {
  loop_.Modify(watch_, socket_.get(), events);
}

void HandshakeSocket::Unwatch() {
  if (watch_ != 0) {
    loop_.Remove(std::exchange(watch_, 0), socket_.get());
  }
}

UniqueFd HandshakeSocket::Take() {
  Unwatch();
  return std::move(socket_);
}

Result<bool> HandshakeSocket::Read(std::span<std::byte> message) {
  const auto rest = message.subspan(have_);
  const ssize_t got = ::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return false;
  }
  if (got <= 0) {
    return UnavailableError(
        "{}", got == 0 ? "it closed the connection" : ErrnoError(errno, "read").message());
  }
  have_ += static_cast<size_t>(got);
  if (have_ < message.size()) {
    return false;
  }
  have_ = 0;
  return true;
}

Status HandshakeSocket::Write(std::span<const std::byte> message) {
  const ssize_t written =
      ::send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (written != static_cast<ssize_t>(message.size())) {
    return UnavailableError("{}",
                            written < 0 ? ErrnoError(errno, "write").message() : "write: short");
  }
  return Status::Ok();
}

Result<std::unique_ptr<Connection>> SetupWatch::Advance(EventLoop::Handler handler) {
  Unwatch();
  auto connection = setup_->Advance();
  if (connection.ok() && *connection == nullptr) {
    watch_ = loop_.Add(setup_->fd(), EPOLLIN | EPOLLRDHUP, std::move(handler));
  } else {
    setup_ = nullptr;
  }
  return connection;
}

void SetupWatch::Unwatch() {
  if (watch_ != 0) {
    loop_.Remove(std::exchange(watch_, 0), setup_->fd());
  }
}

void SetupWatch::Drop() {
  Unwatch();
  setup_ = nullptr;
}

AcceptSession::AcceptSession(
    EventLoop& loop, Owner& owner, const Transport& transport, size_t listener, UniqueFd socket)
    : loop_(loop),
      owner_(owner),
      transport_(transport),
      listener_(listener),
      socket_(loop, std::move(socket)),
      setup_(loop) {}

void AcceptSession::Start() {
  // The watch keeps the session alive until it ends.
  socket_.Watch(EPOLLIN | EPOLLRDHUP, [self = shared_from_this()](uint32_t) { self->OnReady(); });
  loop_.RunAt(After(kHandshakeTimeout), [weak = weak_from_this()] {
    if (const auto self = weak.lock(); self != nullptr && !self->authentic()) {
      self->Refuse(VerdictCode::kMalformed);
    }
  });
}

void AcceptSession::OnReady() {
  const auto self = shared_from_this();
  switch (step_) {
    case Step::kHello:
      ReadHello();
      break;
    case Step::kProof:
      ReadProof();
      break;
    case Step::kHeld: {
      // A dialler that waits for its verdict says nothing: what comes is its end.
      Drop();
      owner_.OnGone(self, CancelledError("the dialler left"));
      break;
    }
    case Step::kFinish:
      Finish();
      break;
    case Step::kEnded:
      break;
  }
}

void AcceptSession::ReadHello() {
  const Result<bool> whole = socket_.Read(Raw(hello_));
  if (!whole.ok()) {
    Refuse(VerdictCode::kMalformed);
    return;
  }
  if (!*whole) {
    return;
  }
  if (hello_.magic != kHandshakeMagic) {
    Refuse(VerdictCode::kMalformed);
    return;
  }
  identity_ = owner_.identity();
  challenge_.nonce = MakeNonce();
  step_ = Step::kProof;
  if (!socket_.Write(RawConst(challenge_)).ok()) {
    Refuse(VerdictCode::kMalformed);
  }
}

void AcceptSession::ReadProof() {
  const Result<bool> whole = socket_.Read(Raw(proof_));
  if (!whole.ok()) {
    Refuse(VerdictCode::kMalformed);
    return;
  }
  if (!*whole) {
    return;
  }
  if (hello_.version != kProtocolVersion) {
    Refuse(VerdictCode::kWrongVersion);
  } else if (!SameDigest(hello_.job, identity_.job)) {
    Refuse(VerdictCode::kWrongJob);
  } else if (identity_.secret.empty() ||
             !SameDigest(proof_.mac,
                         ProveDial(identity_.secret, hello_, challenge_, peer_uses_tls()).mac)) {
    Refuse(VerdictCode::kWrongSecret);
  } else {
    step_ = Step::kHeld;
    socket_.SetEvents(EPOLLRDHUP);
    owner_.OnAuthentic(shared_from_this());
  }
}

void AcceptSession::Welcome() {
  const Verdict verdict{
      .mac = ProveAccept(identity_.secret, hello_, challenge_, VerdictCode::kWelcome)};
  step_ = Step::kFinish;
  if (const Status sent = socket_.Write(RawConst(verdict)); !sent.ok()) {
    const auto self = shared_from_this();
    Drop();
    owner_.OnGone(self, sent);
    return;
  }
  setup_.Begin(
      BeginConnection(transport_, listener_, socket_.Take(), false, identity_, hello_, challenge_));
  loop_.RunAt(After(kHandshakeTimeout), [weak = weak_from_this()] {
    if (const auto self = weak.lock(); self != nullptr && self->step_ == Step::kFinish) {
      self->Drop();
      self->owner_.OnGone(
          self, DeadlineExceededError("its part of the connection has not come within {} s",
                                      Seconds(kHandshakeTimeout)));
    }
  });
  Finish();
}

void AcceptSession::Finish() {
  const auto self = shared_from_this();
  auto connection = setup_.Advance([self](uint32_t) { self->OnReady(); });
  if (connection.ok() && *connection == nullptr) {
    return;
  }
  step_ = Step::kEnded;
  if (connection.ok()) {
    owner_.OnConnection(self, *std::move(connection));
  } else {
    Drop();
    owner_.OnGone(self, connection.status());
  }
}

void AcceptSession::Refuse(VerdictCode reason) {
  if (step_ == Step::kEnded) {
    return;
  }
  const auto self = shared_from_this();
  // A stranger gets a constant answer without a proof; it has none to give either.
  Verdict verdict{.code = reason};
  if (step_ == Step::kHeld) {
    verdict.mac = ProveAccept(identity_.secret, hello_, challenge_, reason);
  }
  owner_.OnRefused(self, reason);  // Counted before the other side can know.
  if (step_ != Step::kHello) {
    socket_.Write(RawConst(verdict)).IgnoreError("it is being refused");
  }
  Drop();
}

void AcceptSession::Drop() {
  step_ = Step::kEnded;
  socket_.Take();
  setup_.Drop();
}

DialSession::DialSession(EventLoop& loop,
                         const Transport& transport,
                         Route route,
                         Identity identity,
                         const Hello& hello,
                         Deadline deadline,
                         Done done)
    : loop_(loop),
      transport_(transport),
      route_(std::move(route)),
      identity_(std::move(identity)),
      hello_(hello),
      deadline_(deadline),
      done_(std::move(done)),
      setup_(loop) {}

void DialSession::Start(Deadline connect_by, Duration step) {
  step_timeout_ = step;
  auto socket = transport_.Dial(route_);
  if (!socket.ok()) {
    End(socket.status());
    return;
  }
  socket_ = std::make_unique<HandshakeSocket>(loop_, *std::move(socket));
  socket_->Watch(EPOLLOUT, [self = shared_from_this()](uint32_t) { self->OnReady(); });
  ExpectWithin(Step::kConnect, std::min(deadline_, connect_by), "while connecting");
}

void DialSession::ExpectWithin(Step step, Deadline deadline, const char* what) {
  step_ = step;
  loop_.RunAt(deadline, [weak = weak_from_this(), step, what] {
    const auto self = weak.lock();
    if (self != nullptr && self->step_ == step) {
      self->End(DeadlineExceededError("deadline passed {}", what));
    }
  });
}

void DialSession::OnReady() {
  const auto self = shared_from_this();
  switch (step_) {
    case Step::kConnect:
      SendHello();
      break;
    case Step::kChallenge:
      ReadChallenge();
      break;
    case Step::kVerdict:
      ReadVerdict();
      break;
    case Step::kFinish:
      Finish();
      break;
    case Step::kEnded:
      break;
  }
}

void DialSession::SendHello() {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    End(UnavailableError("{}", ErrnoError(error, "connect").message()));
    return;
  }
  const Status sent = socket_->Write(RawConst(hello_));
  if (!sent.ok()) {
    End(sent);
    return;
  }
  socket_->SetEvents(EPOLLIN);
  ExpectWithin(Step::kChallenge, std::min(deadline_, After(step_timeout_)), "in the handshake");
}

void DialSession::ReadChallenge() {
  const Result<bool> whole = socket_->Read(Raw(challenge_));
  if (!whole.ok()) {
    End(whole.status());
    return;
  }
  if (!*whole) {
    return;
  }
  if (challenge_.magic != kHandshakeMagic) {
    End(UnauthenticatedError("the answer is not Heddle's"));
    return;
  }
  const Status sent =
      socket_->Write(RawConst(ProveDial(identity_.secret, hello_, challenge_, identity_.tls)));
  if (!sent.ok()) {
    End(sent);
    return;
  }
  // The peer answers when it connects to this generation itself.
  ExpectWithin(Step::kVerdict, deadline_, "before it joined the generation");
}

void DialSession::ReadVerdict() {
  const Result<bool> whole = socket_->Read(Raw(verdict_));
  if (!whole.ok()) {
    End(whole.status());
    return;
  }
  if (!*whole) {
    return;
  }
  const Status status = CheckVerdict(identity_, hello_, challenge_, verdict_);
  if (!status.ok()) {
    End(status);
    return;
  }
  ExpectWithin(Step::kFinish, std::min(deadline_, After(step_timeout_)),
               "while the connection was set up");
  setup_.Begin(BeginConnection(transport_, route_.listener, socket_->Take(), true, identity_,
                               hello_, challenge_));
  Finish();
}

void DialSession::Finish() {
  auto connection = setup_.Advance([self = shared_from_this()](uint32_t) { self->OnReady(); });
  if (!connection.ok() || *connection != nullptr) {
    End(std::move(connection));
  }
}

void DialSession::End(Result<std::unique_ptr<Connection>> result) {
  if (step_ == Step::kEnded) {
    return;
  }
  const auto self = shared_from_this();
  Drop();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

void DialSession::Drop() {
  step_ = Step::kEnded;
  if (socket_ != nullptr) {
    socket_->Take();
  }
  setup_.Drop();
}

}  // namespace heddle::comm
