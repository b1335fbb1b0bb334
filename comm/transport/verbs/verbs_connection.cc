#include "comm/transport/verbs/verbs_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "comm/transport/ip_socket.h"

namespace heddle::comm {

namespace {

constexpr uint32_t kPacketMask = 0xFFFFFF;

// A silent peer: 7 tries of 4.096 us * 2^15 = 134 ms. Not 7 retries: some devices take that for
// "for ever". A lost packet whose successor does not tell costs one such wait.
constexpr uint8_t kTimeout = 15;
constexpr uint8_t kRetries = 6;
constexpr double kSilenceSeconds = (kRetries + 1) * 4.096e-6 * (1 << kTimeout);
// "Receiver not ready" cannot happen while both ends keep to the credit; 6 tries of 0.64 ms bound
// it if one does not.
constexpr uint8_t kNotReadyTimer = 12;
constexpr uint8_t kNotReadyRetries = 6;
constexpr uint8_t kHopLimit = 64;

}  // namespace

Result<std::unique_ptr<VerbsConnection>> VerbsConnection::Create(
    std::shared_ptr<VerbsDevice> device, TrafficClass traffic_class) {
  std::unique_ptr<VerbsConnection> connection(
      new VerbsConnection(std::move(device), traffic_class));
  HEDDLE_RETURN_IF_ERROR(connection->Allocate());
  return connection;
}

Status VerbsConnection::Allocate() {
  constexpr size_t kControl = (kReceives + kSendDepth) * sizeof(ControlMessage);
  const size_t bytes = 2 * ring_bytes_ + kControl;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "mmap");
  }
  memory_ = static_cast<std::byte*>(memory);
  ring_ = memory_;
  staging_ = ring_ + ring_bytes_;
  received_ = staging_ + ring_bytes_;
  sent_ = received_ + kReceives * sizeof(ControlMessage);
  memory_bytes_ = bytes;
  piece_bytes_ = std::min<size_t>(kPieceBytes, device_->max_message_bytes());
  ring_region_ = ::ibv_reg_mr(device_->domain(), ring_, ring_bytes_,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (ring_region_ == nullptr) {
    return VerbsResourceError(errno, "registering memory for RDMA");
  }
  own_region_ =
      ::ibv_reg_mr(device_->domain(), staging_, bytes - ring_bytes_, int{IBV_ACCESS_LOCAL_WRITE});
  if (own_region_ == nullptr) {
    return VerbsResourceError(errno, "registering memory for RDMA");
  }
  channel_ = ::ibv_create_comp_channel(device_->context());
  if (channel_ == nullptr) {
    return ErrnoError(errno, "ibv_create_comp_channel");
  }
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoError(errno, "fcntl");
  }
  completions_ = ::ibv_create_cq(device_->context(), kCompletions, nullptr, channel_, 0);
  if (completions_ == nullptr) {
    return VerbsResourceError(errno, "ibv_create_cq");
  }
  return Status::Ok();
}

VerbsConnection::~VerbsConnection() {
  if (queue_pair_ != nullptr) {
    device_->Remove(queue_pair_->qp_num);
    if (cm_id_ != nullptr) {
      ::rdma_destroy_qp(cm_id_);
    } else {
      ::ibv_destroy_qp(queue_pair_);
    }
  }
  if (cm_id_ != nullptr) {
    ::rdma_destroy_id(cm_id_);
  }
  if (cm_channel_ != nullptr) {
    ::rdma_destroy_event_channel(cm_channel_);
  }
  if (completions_ != nullptr) {
    ::ibv_ack_cq_events(completions_, unacknowledged_);
    ::ibv_destroy_cq(completions_);
  }
  if (channel_ != nullptr) {
    ::ibv_destroy_comp_channel(channel_);
  }
  // The fence: after this no write of a peer that was given up can land here.
  for (ibv_mr* region : {ring_region_, own_region_}) {
    if (region != nullptr) {
      ::ibv_dereg_mr(region);
    }
  }
  EndRegistrations();
  if (memory_ != nullptr) {
    ::munmap(memory_, memory_bytes_);
  }
}

Status VerbsConnection::MakeQueuePair() {
  ibv_qp_init_attr want{};
  want.send_cq = want.recv_cq = completions_;
  want.qp_type = IBV_QPT_RC;
  want.cap.max_send_wr = kSendDepth;
  want.cap.max_recv_wr = kReceives;
  want.cap.max_send_sge = want.cap.max_recv_sge = 1;
  want.cap.max_inline_data = sizeof(ControlMessage);
  const auto make = [&] {
    if (cm_id_ == nullptr) {
      queue_pair_ = ::ibv_create_qp(device_->domain(), &want);
    } else if (::rdma_create_qp(cm_id_, device_->domain(), &want) == 0) {
      queue_pair_ = cm_id_->qp;
    }
    return queue_pair_ != nullptr;
  };
  if (!make()) {
    want.cap.max_inline_data = 0;  // Some have none; control messages then go from memory.
    if (!make()) {
      return VerbsResourceError(errno, "ibv_create_qp");
    }
  }
  inline_control_ = want.cap.max_inline_data >= sizeof(ControlMessage);
  const Digest random = MakeNonce();
  std::memcpy(&first_packet_, random.data(), sizeof(first_packet_));
  first_packet_ &= kPacketMask;
  news_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news_.valid()) {
    return ErrnoError(errno, "eventfd");
  }
  device_->Add(queue_pair_->qp_num, completions_, news_.get());
  if (cm_id_ == nullptr) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = device_->port().port;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (const int error =
            ::ibv_modify_qp(queue_pair_, &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        error != 0) {
      return ErrnoError(error, "queue pair to INIT");
    }
  }
  std::array<uint32_t, kReceives> slots{};
  for (uint32_t i = 0; i < kReceives; ++i) {
    slots[i] = i;
  }
  return PostReceives(slots);
}

Status VerbsConnection::MakeQueuePair(rdma_event_channel* channel, rdma_cm_id* id) {
  cm_channel_ = channel;
  cm_id_ = id;
  if (id->verbs != device_->context()) {
    return InternalError("librdmacm opened {} twice", device_->port().device);
  }
  return MakeQueuePair();
}

VerbsHello VerbsConnection::Hello() const {
  const RdmaPort& port = device_->port();
  VerbsHello hello;
  hello.kind = port.kind;
  hello.mtu = std::clamp<uint8_t>(device_->active_mtu(), IBV_MTU_256, IBV_MTU_4096);
  hello.gid = port.gid;
  hello.lid = device_->lid();
  hello.queue_pair = queue_pair_ == nullptr ? 0 : queue_pair_->qp_num;
  hello.first_packet = first_packet_;
  hello.ring_address = reinterpret_cast<uint64_t>(ring_);
  hello.ring_key = ring_region_->rkey;
  hello.ring_bytes = static_cast<uint32_t>(ring_bytes_);
  hello.receives = kReceives;
  return hello;
}

void VerbsConnection::SetPeer(const VerbsHello& peer) {
  peer_ring_ = peer.ring_address;
  peer_key_ = peer.ring_key;
  peer_receives_ = peer.receives;
  immediate_ = device_->writes_with_immediate();
}

Status VerbsConnection::Join(const VerbsHello& peer) {
  const RdmaPort& port = device_->port();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(peer.mtu, Hello().mtu));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.first_packet;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kNotReadyTimer;
  ibv_ah_attr& route = attributes.ah_attr;
  route.port_num = port.port;
  route.dlid = peer.lid;
  // RoCE has nothing but the global address; InfiniBand needs it between subnets only.
  route.is_global = port.kind == RdmaKind::kRoce ||
                            !std::equal(port.gid.begin(), port.gid.begin() + 8, peer.gid.begin())
                        ? 1
                        : 0;
  route.grh.sgid_index = static_cast<uint8_t>(port.gid_index);
  route.grh.hop_limit = kHopLimit;
  std::memcpy(route.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  if (const int error =
          ::ibv_modify_qp(queue_pair_, &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0) {
    return UnavailableError("{}", ErrnoError(error, "queue pair to RTR").message());
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kNotReadyRetries;
  attributes.sq_psn = first_packet_;
  attributes.max_rd_atomic = 1;
  if (const int error =
          ::ibv_modify_qp(queue_pair_, &attributes,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      error != 0) {
    return UnavailableError("{}", ErrnoError(error, "queue pair to RTS").message());
  }
  SetPeer(peer);
  return Status::Ok();
}

Result<bool> VerbsConnection::Probed() {
  PrepareToWait(true, false);
  // What the peer wrote behind its probe waits in the ring.
  HEDDLE_RETURN_IF_ERROR(failure_);
  return probed_;
}

Status VerbsConnection::Start(UniqueFd socket) {
  socket_ = std::move(socket);
  TuneTcp(socket_.get(), traffic_class_);
  watched_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  // Edges: an event that nobody can act on yet must not keep the loop awake.
  const auto watch = [&](int fd, uint32_t events, uint64_t what) {
    epoll_event event{};
    event.events = events | static_cast<uint32_t>(EPOLLET);
    event.data.u64 = what;
    return ::epoll_ctl(watched_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (!watched_.valid() || !watch(socket_.get(), EPOLLIN | EPOLLRDHUP, kSocket) ||
      !watch(device_->event_fd(), EPOLLIN, kDevice) || !watch(news_.get(), EPOLLIN, kDevice) ||
      (cm_channel_ != nullptr && !watch(cm_channel_->fd, EPOLLIN, kManager))) {
    return ErrnoError(errno, "epoll");
  }
  return Status::Ok();
}

int VerbsConnection::completion_fd() const {
  return channel_->fd;
}

Status VerbsConnection::CompletionError(const ibv_wc& completion) const {
  // Of a completion in error only the number, the status and the vendor's code mean anything.
  std::string what;
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      what = fmt::format("no acknowledgement within {:.1f} s", kSilenceSeconds);
      break;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      what = "the peer has no receive posted";
      break;
    case IBV_WC_REM_ACCESS_ERR:
      what = "the peer has withdrawn its memory";
      break;
    case IBV_WC_WR_FLUSH_ERR: {
      const Status reason = device_->Failure(queue_pair_->qp_num);
      what = reason.ok() ? "the queue pair is in error" : reason.message();
      break;
    }
    default:
      what = fmt::format("completion with vendor error {:#x}", completion.vendor_err);
      break;
  }
  return UnavailableError("{} ({}, device {})", what, ::ibv_wc_status_str(completion.status),
                          device_->port().device);
}

void VerbsConnection::StopQueuePair() {
  if (queue_pair_ != nullptr) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    // What fails here ends with the queue pair's destruction a moment later.
    ::ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  }
}

}  // namespace heddle::comm
