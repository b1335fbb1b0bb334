#include "comm/transport/verbs/verbs_device.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

namespace heddle::comm {

namespace {

/// The context of librdmacm for the device that owns `port.ip`.
Result<VerbsHandle<rdma_cm_id>> Anchor(const RdmaPort& port, rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) {
    return UnavailableError("{}", ErrnoError(errno, "rdma_create_id").message());
  }
  VerbsHandle<rdma_cm_id> anchor(id);
  sockaddr_storage address{};
  auto* four = reinterpret_cast<sockaddr_in*>(&address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address);
  if (::inet_pton(AF_INET, port.ip.c_str(), &four->sin_addr) == 1) {
    address.ss_family = AF_INET;
  } else {
    ::inet_pton(AF_INET6, port.ip.c_str(), &six->sin6_addr);
    address.ss_family = AF_INET6;
  }
  if (::rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) != 0) {
    return UnavailableError("{}", ErrnoError(errno, "rdma_bind_addr").message());
  }
  if (id->verbs == nullptr || port.device != ::ibv_get_device_name(id->verbs->device)) {
    return UnavailableError("librdmacm finds another device at {}", port.ip);
  }
  return anchor;
}

}  // namespace

// Locked memory is the limit that people meet.
Status VerbsResourceError(int error, std::string_view what) {
  rlimit limit{};
  if (error == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    return ResourceExhaustedError(
        "{}: out of memory that may be locked: RLIMIT_MEMLOCK is {} KiB; raise it with "
        "`ulimit -l unlimited`, or LimitMEMLOCK=infinity in a systemd unit",
        what, limit.rlim_cur >> 10);
  }
  return ErrnoError(error, what);
}

Status VerbsPostError(int error, std::string_view what) {
  return UnavailableError("{}", ErrnoError(error > 0 ? error : errno, what).message());
}

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(const RdmaPort& port) {
  std::shared_ptr<VerbsDevice> device(new VerbsDevice(port));
  const Status status = device->OpenContext();
  if (!status.ok()) {
    return UnavailableError("RDMA device {}: {}", port.device, status.message());
  }
  return device;
}

Status VerbsDevice::OpenContext() {
  // First of all calls: a fork must not take registered pages away from this process. Kernels since
  // 5.12 see to it themselves, and then this does nothing.
  ::ibv_fork_init();
  if (port_.kind == RdmaKind::kIwarp) {
    anchor_channel_.reset(::rdma_create_event_channel());
    if (anchor_channel_ == nullptr) {
      return ErrnoError(errno, "rdma_create_event_channel (is the module rdma_ucm loaded?)");
    }
    HEDDLE_ASSIGN_OR_RETURN(anchor_, Anchor(port_, anchor_channel_.get()));
    context_ = anchor_->verbs;
  } else {
    errno = ENODEV;  // Should no device have the name.
    int count = 0;
    const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(::ibv_get_device_list(&count),
                                                                    ::ibv_free_device_list);
    for (int i = 0; i < count && context_ == nullptr; ++i) {
      if (port_.device == ::ibv_get_device_name(list.get()[i])) {
        context_ = ::ibv_open_device(list.get()[i]);
      }
    }
    if (context_ == nullptr) {
      return ErrnoError(errno, "ibv_open_device (/dev/infiniband/uverbs* must be accessible)");
    }
  }
  ibv_port_attr attributes{};
  if (const int error = ::ibv_query_port(context_, port_.port, &attributes); error != 0) {
    return ErrnoError(error, "ibv_query_port");
  }
  max_message_bytes_ = attributes.max_msg_sz;
  active_mtu_ = static_cast<uint8_t>(attributes.active_mtu);
  lid_ = attributes.lid;
  domain_.reset(::ibv_alloc_pd(context_));
  if (domain_ == nullptr) {
    return ErrnoError(errno, "ibv_alloc_pd");
  }
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoError(errno, "fcntl");
  }
  return Status::Ok();
}

VerbsDevice::~VerbsDevice() {
  domain_.reset();
  if (anchor_ == nullptr && context_ != nullptr) {
    ::ibv_close_device(context_);
  }
}

Status VerbsDevice::CheckPort() const {
  ibv_port_attr attributes{};
  if (const int error = ::ibv_query_port(context_, port_.port, &attributes); error != 0) {
    return UnavailableError("RDMA device {}: {}", port_.device,
                            ErrnoError(error, "ibv_query_port").message());
  }
  return attributes.state == IBV_PORT_ACTIVE
             ? Status::Ok()
             : UnavailableError("RDMA device {} port {}: its state is {}", port_.device, port_.port,
                                ::ibv_port_state_str(attributes.state));
}

Status VerbsDevice::CheckDmaBuf() const {
  // The kernel looks for the descriptor only if the device's driver registers such memory.
  constexpr int kNoFile = std::numeric_limits<int>::max();
  constexpr size_t kBytes = 4096;
  const VerbsHandle<ibv_mr> memory(
      ::ibv_reg_dmabuf_mr(domain(), 0, kBytes, 0, kNoFile, IBV_ACCESS_LOCAL_WRITE));
  const int error = errno;
  return error == EBADF ? Status::Ok()
                        : UnavailableError("{}", ErrnoError(error, "ibv_reg_dmabuf_mr").message());
}

int VerbsDevice::event_fd() const {
  return context_->async_fd;
}

void VerbsDevice::Add(uint32_t queue_pair, const ibv_cq* completions, int news) {
  const MutexLock lock(mutex_);
  TakeEvents();  // Events that came before do not concern the new queue pair.
  queue_pairs_[queue_pair] = {.completions = completions, .news = news, .failure = {}};
}

void VerbsDevice::Remove(uint32_t queue_pair) {
  const MutexLock lock(mutex_);
  queue_pairs_.erase(queue_pair);
}

void VerbsDevice::Note(const ibv_async_event& event) {
  const Status failure = UnavailableError("RDMA device {} port {}: {}", port_.device, port_.port,
                                          ::ibv_event_type_str(event.event_type));
  const auto concerns = [&](uint32_t number, const QueuePair& pair) {
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_PATH_MIG_ERR:
        return event.element.qp->qp_num == number;
      case IBV_EVENT_CQ_ERR:
        return event.element.cq == pair.completions;
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_LID_CHANGE:
        return event.element.port_num == port_.port;
      case IBV_EVENT_DEVICE_FATAL:
        return true;
      default:  // The port came up, a table changed, a subnet manager went: nothing broke.
        return false;
    }
  };
  for (auto& [number, pair] : queue_pairs_) {
    if (pair.failure.ok() && concerns(number, pair)) {
      pair.failure = failure;
      ::eventfd_write(pair.news, 1);
    }
  }
}

void VerbsDevice::TakeEvents() {
  ibv_async_event event{};
  while (::ibv_get_async_event(context_, &event) == 0) {
    Note(event);
    ::ibv_ack_async_event(&event);
  }
}

Status VerbsDevice::Failure(uint32_t queue_pair) {
  const MutexLock lock(mutex_);
  TakeEvents();
  const auto found = queue_pairs_.find(queue_pair);
  return found == queue_pairs_.end() ? Status::Ok() : found->second.failure;
}

}  // namespace heddle::comm
