#include "comm/transport/verbs/verbs_queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

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

Status VerbsQueuePair::Allocate() {
  channel_.reset(::ibv_create_comp_channel(device_->context()));
  if (channel_ == nullptr) {
    return ErrnoError(errno, "ibv_create_comp_channel");
  }
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoError(errno, "fcntl");
  }
  // Every completion could come at once: the queue holds them all.
  constexpr int kCompletions = StreamCredit::kReceives + SendRequests::kDepth;
  completions_.reset(::ibv_create_cq(device_->context(), kCompletions, nullptr, channel_.get(), 0));
  if (completions_ == nullptr) {
    return VerbsResourceError(errno, "ibv_create_cq");
  }
  return Status::Ok();
}

VerbsQueuePair::~VerbsQueuePair() {
  if (queue_pair_ != nullptr) {
    device_->Remove(queue_pair_->qp_num);
    if (id_ != nullptr) {
      ::rdma_destroy_qp(id_.get());
    } else {
      ::ibv_destroy_qp(queue_pair_);
    }
  }
  if (completions_ != nullptr) {
    ::ibv_ack_cq_events(completions_.get(), unacknowledged_);
  }
}

Status VerbsQueuePair::Make(VerbsHandle<rdma_event_channel> manager, VerbsHandle<rdma_cm_id> id) {
  manager_ = std::move(manager);
  id_ = std::move(id);
  if (id_ != nullptr && id_->verbs != device_->context()) {
    return InternalError("librdmacm opened {} twice", device_->port().device);
  }
  ibv_qp_init_attr want{};
  want.send_cq = want.recv_cq = completions_.get();
  want.qp_type = IBV_QPT_RC;
  want.cap.max_send_wr = SendRequests::kDepth;
  want.cap.max_recv_wr = StreamCredit::kReceives;
  want.cap.max_send_sge = want.cap.max_recv_sge = 1;
  want.cap.max_inline_data = sizeof(ControlMessage);
  const auto make = [&] {
    if (id_ == nullptr) {
      queue_pair_ = ::ibv_create_qp(device_->domain(), &want);
    } else if (::rdma_create_qp(id_.get(), device_->domain(), &want) == 0) {
      queue_pair_ = id_->qp;
    }
    return queue_pair_ != nullptr;
  };
  if (!make()) {
    want.cap.max_inline_data = 0;  // Some have none; control messages then go from memory.
    if (!make()) {
      return VerbsResourceError(errno, "ibv_create_qp");
    }
  }
  sends_inline_ = want.cap.max_inline_data >= sizeof(ControlMessage);
  const Digest random = MakeNonce();
  std::memcpy(&first_packet_, random.data(), sizeof(first_packet_));
  first_packet_ &= kPacketMask;
  news_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news_.valid()) {
    return ErrnoError(errno, "eventfd");
  }
  device_->Add(queue_pair_->qp_num, completions_.get(), news_.get());
  if (id_ != nullptr) {
    return Status::Ok();
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_->port().port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error =
      ::ibv_modify_qp(queue_pair_, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? Status::Ok() : ErrnoError(error, "queue pair to INIT");
}

VerbsHello VerbsQueuePair::Hello() const {
  VerbsHello hello;
  hello.kind = device_->port().kind;
  hello.mtu = std::clamp<uint8_t>(device_->active_mtu(), IBV_MTU_256, IBV_MTU_4096);
  hello.gid = device_->port().gid;
  hello.lid = device_->lid();
  hello.queue_pair = queue_pair_ == nullptr ? 0 : queue_pair_->qp_num;
  hello.first_packet = first_packet_;
  return hello;
}

Status VerbsQueuePair::Join(const VerbsHello& peer) {
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
  return Status::Ok();
}

Status VerbsQueuePair::Fail(const Status& status) {
  if (failure_.ok()) {
    failure_ = status;
  }
  return failure_;
}

void VerbsQueuePair::Stop(const Status& why) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // If it fails, the queue pair is destroyed a moment later anyway.
  ::ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  Fail(why).IgnoreError("it is kept");
}

Status VerbsQueuePair::Post(VerbsChain& chain) {
  if (chain.empty()) {
    return Status::Ok();
  }
  ibv_send_wr* bad = nullptr;
  const int error = ::ibv_post_send(queue_pair_, chain.first(), &bad);
  chain.Clear();
  return error == 0 ? Status::Ok() : Fail(VerbsPostError(error, "ibv_post_send"));
}

Status VerbsQueuePair::PostReceives(std::span<const uint32_t> slots,
                                    std::byte* memory,
                                    uint32_t key) {
  std::array<ibv_recv_wr, kBatch> requests;
  std::array<ibv_sge, kBatch> parts;
  for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
    const size_t count = std::min<size_t>(kBatch, slots.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t slot = slots[begin + i];
      parts[i].addr = reinterpret_cast<uint64_t>(memory + slot * sizeof(ControlMessage));
      parts[i].length = sizeof(ControlMessage);
      parts[i].lkey = key;
      requests[i] = {};
      requests[i].wr_id = kReceiveBit | slot;
      requests[i].sg_list = &parts[i];
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ::ibv_post_recv(queue_pair_, requests.data(), &bad); error != 0) {
      return Fail(VerbsPostError(error, "ibv_post_recv"));
    }
  }
  return Status::Ok();
}

void VerbsQueuePair::TakeEvent() {
  ibv_cq* completions = nullptr;
  void* context = nullptr;
  if (::ibv_get_cq_event(channel_.get(), &completions, &context) == 0) {
    armed_ = false;
    if (++unacknowledged_ == kBatch) {  // Each acknowledgement takes a lock.
      ::ibv_ack_cq_events(completions_.get(), std::exchange(unacknowledged_, 0));
    }
  }
}

void VerbsQueuePair::Arm() {
  if (armed_) {
    return;
  }
  if (const int error = ::ibv_req_notify_cq(completions_.get(), 0); error != 0) {
    Fail(UnavailableError("{}", ErrnoError(error, "ibv_req_notify_cq").message()))
        .IgnoreError("it is kept");
  }
  armed_ = true;
}

Result<std::span<const ibv_wc>> VerbsQueuePair::Poll(std::array<ibv_wc, kBatch>& batch) {
  const int count = ::ibv_poll_cq(completions_.get(), kBatch, batch.data());
  if (count < 0) {
    return Fail(UnavailableError("ibv_poll_cq failed (device {})", device_->port().device));
  }
  return std::span<const ibv_wc>(batch).first(static_cast<size_t>(count));
}

Status VerbsQueuePair::CompletionError(const ibv_wc& completion) const {
  // Only the number, the status and the vendor's code of a failed completion are valid.
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

Status VerbsQueuePair::Watch(int socket) {
  watched_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  // Edge triggered, because an event that cannot be handled yet must not keep the loop awake.
  const auto watch = [&](int fd, uint32_t events, uint64_t what) {
    epoll_event event{};
    event.events = events | static_cast<uint32_t>(EPOLLET);
    event.data.u64 = what;
    return ::epoll_ctl(watched_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (!watched_.valid() || !watch(socket, EPOLLIN | EPOLLRDHUP, kSocket) ||
      !watch(device_->event_fd(), EPOLLIN, kDevice) || !watch(news_.get(), EPOLLIN, kDevice) ||
      (manager_ != nullptr && !watch(manager_->fd, EPOLLIN, kManager))) {
    return ErrnoError(errno, "epoll");
  }
  return Status::Ok();
}

bool VerbsQueuePair::TakeNews() {
  std::array<epoll_event, 4> ready{};
  const int count = ::epoll_wait(watched_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  bool gone = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.u64 == kSocket) {
      // Nothing is said on it after the handshake.
      gone = true;
    } else if (event.data.u64 == kManager) {
      rdma_cm_event* news = nullptr;
      while (::rdma_get_cm_event(manager_.get(), &news) == 0) {
        gone = gone || news->event == RDMA_CM_EVENT_DISCONNECTED;
        ::rdma_ack_cm_event(news);
      }
    } else {
      Fail(device_->Failure(queue_pair_->qp_num)).IgnoreError("it is kept");
    }
  }
  return gone;
}

}  // namespace heddle::comm
