#include "comm/transport/verbs/verbs_iwarp.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "comm/transport/ip_socket.h"

namespace heddle::comm {

namespace {

constexpr int kResolveMilliseconds = 1000;
constexpr int kBacklog = 4;
/// iWARP shares its ports with TCP. librdmacm would choose one without regard to TCP's and fail
/// when it listens, or worse, when it connects; one that TCP has free may be librdmacm's.
constexpr int kPortTries = 8;

}  // namespace

Status IwarpConnector::Open() {
  channel_.reset(::rdma_create_event_channel());
  if (channel_ == nullptr) {
    return ErrnoError(errno, "rdma_create_event_channel");
  }
  events_ = channel_.get();
  const int flags = ::fcntl(events_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(events_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoError(errno, "fcntl");
  }
  return MakeIdentifier();
}

Status IwarpConnector::MakeIdentifier() {
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(events_, &id, nullptr, RDMA_PS_TCP) != 0) {
    return ErrnoError(errno, "rdma_create_id");
  }
  id_.reset(id);
  return Status::Ok();
}

Status IwarpConnector::Listen(int socket, VerbsHello& hello) {
  HEDDLE_RETURN_IF_ERROR(Open());
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  HEDDLE_RETURN_IF_ERROR(WithFreePort("rdma_listen", own, [&] {
    const int bound = ::rdma_bind_addr(id_.get(), reinterpret_cast<sockaddr*>(&own));
    return bound == 0 ? ::rdma_listen(id_.get(), kBacklog) : bound;
  }));
  hello.cm_port = ntohs(::rdma_get_src_port(id_.get()));
  hello.token = token_;
  return Status::Ok();
}

Status IwarpConnector::WithFreePort(std::string_view what,
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
    id_.reset();
    HEDDLE_RETURN_IF_ERROR(MakeIdentifier());
  }
}

Status IwarpConnector::Connect(int socket) {
  HEDDLE_RETURN_IF_ERROR(Open());
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_size) != 0) {
    return UnavailableError("{}", ErrnoError(errno, "getpeername").message());
  }
  // The port is at the same place for both families.
  reinterpret_cast<sockaddr_in*>(&other)->sin_port = htons(peer_.cm_port);
  return WithFreePort("rdma_resolve_addr", own, [&] {
    return ::rdma_resolve_addr(id_.get(), reinterpret_cast<sockaddr*>(&own),
                               reinterpret_cast<sockaddr*>(&other), kResolveMilliseconds);
  });
}

Result<bool> IwarpConnector::Advance() {
  rdma_cm_event* event = nullptr;
  if (::rdma_get_cm_event(events_, &event) != 0) {
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
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST &&
      (channel_ == nullptr || !SameDigest(token, token_))) {
    ::rdma_reject(id, nullptr, 0);  // A stranger found the port.
    ::rdma_destroy_id(id);
    return true;
  }
  if (error != 0) {
    return UnavailableError("{} ({})", ::rdma_event_str(type), error);
  }
  HEDDLE_RETURN_IF_ERROR(OnEvent(type, id));
  return true;
}

Status IwarpConnector::OnEvent(rdma_cm_event_type type, rdma_cm_id* id) {
  rdma_conn_param parameters{};
  parameters.private_data = token_.data();
  parameters.private_data_len = static_cast<uint8_t>(token_.size());
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  const auto checked = [](int result, const char* what) {
    return result == 0 ? Status::Ok() : UnavailableError("{}", ErrnoError(errno, what).message());
  };
  const auto join = [&]() -> Status {
    VerbsHandle<rdma_cm_id> own(dialled_ ? id_.release() : id);
    HEDDLE_RETURN_IF_ERROR(stream_.MakeQueuePair(std::move(channel_), std::move(own)));
    return stream_.Join(peer_);
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
      established_ = true;
      return Status::Ok();
    default:
      return UnavailableError("{}", ::rdma_event_str(type));
  }
}

}  // namespace heddle::comm
