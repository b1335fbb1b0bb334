#include "comm/verbs_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/check.h"
#include "comm/tcp_socket.h"

namespace heddle::comm {

namespace {

constexpr uint64_t kReceiveBit = uint64_t{1} << 63;  ///< Of a work request's number.
constexpr int kBatch = 32;
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

enum Watched : uint64_t { kSocket, kDevice, kManager };

// What an allocation of the verbs library failed with. Locked memory is the limit that people meet.
Status ResourceError(int error, std::string_view what) {
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

}  // namespace

/// Send requests that are handed to the device in one call.
class VerbsConnection::Chain {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ + 2 > requests_.size(); }
  ibv_send_wr* first() { return requests_.data(); }
  void Clear() { count_ = 0; }
  ibv_send_wr& Add(const void* data, size_t bytes, uint32_t key) {
    ibv_sge& part = parts_[count_];
    part.addr = reinterpret_cast<uint64_t>(data);
    part.length = static_cast<uint32_t>(bytes);
    part.lkey = key;
    ibv_send_wr& request = requests_[count_];
    request = {};
    request.sg_list = &part;
    request.num_sge = 1;
    if (count_ > 0) {
      requests_[count_ - 1].next = &request;
    }
    ++count_;
    return request;
  }

 private:
  std::array<ibv_send_wr, 32> requests_;
  std::array<ibv_sge, 32> parts_;
  size_t count_ = 0;
};

Result<std::unique_ptr<VerbsConnection>> VerbsConnection::Create(
    std::shared_ptr<VerbsDevice> device) {
  std::unique_ptr<VerbsConnection> connection(new VerbsConnection(std::move(device)));
  HEDDLE_RETURN_IF_ERROR(connection->Allocate());
  return connection;
}

Status VerbsConnection::Allocate() {
  constexpr size_t kControl = (kReceives + kSendDepth) * sizeof(ControlMessage);
  constexpr size_t kBytes = 2 * kRingBytes + kControl;
  void* memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "mmap");
  }
  memory_ = static_cast<std::byte*>(memory);
  ring_ = memory_;
  staging_ = ring_ + kRingBytes;
  received_ = staging_ + kRingBytes;
  sent_ = received_ + kReceives * sizeof(ControlMessage);
  memory_bytes_ = kBytes;
  piece_bytes_ = std::min<size_t>(kPieceBytes, device_->max_message_bytes());
  ring_region_ = ::ibv_reg_mr(device_->domain(), ring_, kRingBytes,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (ring_region_ == nullptr) {
    return ResourceError(errno, "registering memory for RDMA");
  }
  own_region_ =
      ::ibv_reg_mr(device_->domain(), staging_, kBytes - kRingBytes, IBV_ACCESS_LOCAL_WRITE);
  if (own_region_ == nullptr) {
    return ResourceError(errno, "registering memory for RDMA");
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
    return ResourceError(errno, "ibv_create_cq");
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
      return ResourceError(errno, "ibv_create_qp");
    }
  }
  inline_control_ = want.cap.max_inline_data >= sizeof(ControlMessage);
  const Digest random = MakeNonce();
  std::memcpy(&first_packet_, random.data(), sizeof(first_packet_));
  first_packet_ &= kPacketMask;
  device_->Add(queue_pair_->qp_num, completions_);
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

Status VerbsConnection::PostReceives(std::span<const uint32_t> slots) {
  std::array<ibv_recv_wr, kBatch> requests;
  std::array<ibv_sge, kBatch> parts;
  for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
    const size_t count = std::min<size_t>(kBatch, slots.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t slot = slots[begin + i];
      parts[i].addr = reinterpret_cast<uint64_t>(received_ + slot * sizeof(ControlMessage));
      parts[i].length = sizeof(ControlMessage);
      parts[i].lkey = own_region_->lkey;
      requests[i] = {};
      requests[i].wr_id = kReceiveBit | slot;
      requests[i].sg_list = &parts[i];
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ::ibv_post_recv(queue_pair_, requests.data(), &bad); error != 0) {
      return UnavailableError("{}", ErrnoError(error, "ibv_post_recv").message());
    }
  }
  return Status::Ok();
}

VerbsHello VerbsConnection::Hello() const {
  const RdmaPort& port = device_->port();
  VerbsHello hello;
  hello.kind = port.kind;
  for (hello.mtu = IBV_MTU_256; hello.mtu < IBV_MTU_4096 && (128 << hello.mtu) < port.mtu_bytes;) {
    ++hello.mtu;
  }
  hello.gid = port.gid;
  hello.lid = port.lid;
  hello.queue_pair = queue_pair_ == nullptr ? 0 : queue_pair_->qp_num;
  hello.first_packet = first_packet_;
  hello.ring_address = reinterpret_cast<uint64_t>(ring_);
  hello.ring_key = ring_region_->rkey;
  hello.ring_bytes = kRingBytes;
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
  ibv_ah_attr& way = attributes.ah_attr;
  way.port_num = port.port;
  way.dlid = peer.lid;
  // RoCE has nothing but the global address; InfiniBand needs it between subnets only.
  way.is_global = port.kind == RdmaKind::kRoce ||
                          !std::equal(port.gid.begin(), port.gid.begin() + 8, peer.gid.begin())
                      ? 1
                      : 0;
  way.grh.sgid_index = static_cast<uint8_t>(port.gid_index);
  way.grh.hop_limit = kHopLimit;
  std::memcpy(way.grh.dgid.raw, peer.gid.data(), peer.gid.size());
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
  TuneTcp(socket_.get());
  watched_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  // Edges: an event that nobody can act on yet must not keep the loop awake.
  const auto watch = [&](int fd, uint32_t events, uint64_t what) {
    epoll_event event{};
    event.events = events | static_cast<uint32_t>(EPOLLET);
    event.data.u64 = what;
    return ::epoll_ctl(watched_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (!watched_.valid() || !watch(socket_.get(), EPOLLIN | EPOLLRDHUP, kSocket) ||
      !watch(device_->event_fd(), EPOLLIN, kDevice) ||
      (cm_channel_ != nullptr && !watch(cm_channel_->fd, EPOLLIN, kManager))) {
    return ErrnoError(errno, "epoll");
  }
  return Status::Ok();
}

int VerbsConnection::completion_fd() const {
  return channel_->fd;
}

std::array<Connection::Watch, 2> VerbsConnection::Watches(bool /*want_read*/, bool /*want_write*/) {
  return {Watch{.fd = channel_->fd, .events = EPOLLIN},
          Watch{.fd = watched_.get(), .events = EPOLLIN}};
}

void VerbsConnection::OnReady(int fd, uint32_t /*events*/) {
  if (fd == channel_->fd) {
    ibv_cq* completions = nullptr;
    void* context = nullptr;
    if (::ibv_get_cq_event(channel_, &completions, &context) == 0) {
      armed_ = false;
      if (++unacknowledged_ == kBatch) {  // Each acknowledgement takes a lock.
        ::ibv_ack_cq_events(completions_, std::exchange(unacknowledged_, 0));
      }
    }
    return;
  }
  std::array<epoll_event, 3> ready{};
  const int count = ::epoll_wait(watched_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.u64 == kSocket) {
      // Nothing is said on it after the handshake.
      hung_up_ = true;
    } else if (event.data.u64 == kManager) {
      rdma_cm_event* news = nullptr;
      while (::rdma_get_cm_event(cm_channel_, &news) == 0) {
        hung_up_ = hung_up_ || news->event == RDMA_CM_EVENT_DISCONNECTED;
        ::rdma_ack_cm_event(news);
      }
    } else {
      Fail(device_->Failure(queue_pair_->qp_num)).IgnoreError("it is kept");
    }
  }
}

bool VerbsConnection::PrepareToWait(bool want_read, bool want_write) {
  if (!armed_) {
    // Armed first, then looked again, so that nothing is missed between the two.
    if (const int error = ::ibv_req_notify_cq(completions_, 0); error != 0) {
      Fail(UnavailableError("{}", ErrnoError(error, "ibv_req_notify_cq").message()))
          .IgnoreError("it is kept");
    }
    armed_ = true;
  }
  Poll().IgnoreError("it is kept");
  const bool over = ended_ || hung_up_ || !failure_.ok();
  const bool readable = want_read && (arrived_ != consumed_ || over);
  const bool writable = want_write && (over || (Room() > 0 && MaySend(immediate_ ? 1 : 2, false)));
  return !readable && !writable;
}

Status VerbsConnection::Fail(const Status& status) {
  if (failure_.ok()) {
    failure_ = status;
  }
  return failure_;
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

Status VerbsConnection::Poll() {
  std::array<ibv_wc, kBatch> batch;
  std::array<uint32_t, kBatch> used{};
  int count = kBatch;
  // Bounded: the peer's credit, which only reading renews, is less than the queue holds.
  while (failure_.ok() && count == kBatch) {
    count = ::ibv_poll_cq(completions_, kBatch, batch.data());
    if (count < 0) {
      return Fail(UnavailableError("ibv_poll_cq failed (device {})", device_->port().device));
    }
    size_t received = 0;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = batch[static_cast<size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        return Fail(CompletionError(completion));
      }
      if ((completion.wr_id & kReceiveBit) == 0) {
        Completed(completion.wr_id);
        continue;
      }
      const Status status = Received(completion);
      if (!status.ok()) {
        return Fail(status);
      }
      used[received++] = static_cast<uint32_t>(completion.wr_id);
    }
    if (received > 0) {
      const Status posted = PostReceives(std::span(used).first(received));
      if (!posted.ok()) {
        return Fail(posted);
      }
      reposted_ += received;
    }
  }
  return failure_.ok() ? SendDue() : failure_;
}

void VerbsConnection::Completed(uint64_t request) {
  completed_ = request + 1;
  confirmed_ = positions_[request % kSendDepth];
}

Status VerbsConnection::Received(const ibv_wc& completion) {
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    return Arrived(ntohl(completion.imm_data));
  }
  if (completion.opcode != IBV_WC_RECV || completion.byte_len != sizeof(ControlMessage)) {
    return DataLossError("an RDMA message of {} bytes", completion.byte_len);
  }
  ControlMessage message;
  std::memcpy(&message,
              received_ + static_cast<uint32_t>(completion.wr_id) * sizeof(ControlMessage),
              sizeof(message));
  return Apply(message);
}

Status VerbsConnection::Apply(const ControlMessage& message) {
  if (message.consumed < peer_consumed_ || message.consumed > written_ ||
      message.reposted < peer_reposted_ || message.reposted > messages_) {
    return DataLossError("RDMA credit out of range");
  }
  peer_consumed_ = message.consumed;
  peer_reposted_ = message.reposted;
  if (ended_ && message.arrived > 0) {
    return DataLossError("bytes after the end");
  }
  probed_ = probed_ || (message.flags & kProbe) != 0;
  ended_ = ended_ || (message.flags & kEnd) != 0;
  return message.arrived > 0 ? Arrived(message.arrived) : Status::Ok();
}

Status VerbsConnection::Arrived(uint64_t bytes) {
  if (bytes > kRingBytes - (arrived_ - consumed_)) {
    return DataLossError("more bytes than the RDMA ring holds");
  }
  arrived_ += bytes;
  return Status::Ok();
}

size_t VerbsConnection::Room() const {
  // Free at the peer, and no longer needed here should the device have to send it again.
  return kRingBytes - static_cast<size_t>(written_ - std::min(peer_consumed_, confirmed_));
}

bool VerbsConnection::MaySend(uint32_t requests, bool control) const {
  const uint64_t kept = control ? 0 : kReserve;
  return requests_ - completed_ + requests + kept <= kSendDepth &&
         messages_ - peer_reposted_ + 1 + kept <= peer_receives_;
}

bool VerbsConnection::CreditIsDue() const {
  return consumed_ - told_consumed_ >= kRingBytes / 4 ||
         reposted_ - told_reposted_ >= kReceives / 4;
}

Status VerbsConnection::SendDue() {
  if (end_due_ && MaySend(1, true)) {
    end_due_ = false;
    return SendControl(kEnd);
  }
  return CreditIsDue() && MaySend(1, true) ? SendControl(0) : Status::Ok();
}

void VerbsConnection::AddControl(Chain& chain, uint32_t arrived, uint32_t flags) {
  const ControlMessage message{
      .consumed = consumed_, .reposted = reposted_, .arrived = arrived, .flags = flags};
  told_consumed_ = consumed_;
  told_reposted_ = reposted_;
  std::byte* place = sent_ + (requests_ % kSendDepth) * sizeof(ControlMessage);
  std::memcpy(place, &message, sizeof(message));
  ibv_send_wr& request = chain.Add(place, sizeof(message), own_region_->lkey);
  request.opcode = IBV_WR_SEND;
  request.send_flags = inline_control_ ? static_cast<unsigned int>(IBV_SEND_INLINE) : 0;
  Number(request);
  ++messages_;
}

void VerbsConnection::AddPiece(Chain& chain, size_t place, size_t bytes) {
  ibv_send_wr& request = chain.Add(staging_ + place, bytes, own_region_->lkey);
  request.wr.rdma.remote_addr = peer_ring_ + place;
  request.wr.rdma.rkey = peer_key_;
  if (immediate_) {
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(static_cast<uint32_t>(bytes));
    Number(request);
    ++messages_;
    return;
  }
  request.opcode = IBV_WR_RDMA_WRITE;
  Number(request);
  AddControl(chain, static_cast<uint32_t>(bytes), 0);
}

void VerbsConnection::Number(ibv_send_wr& request) {
  request.wr_id = requests_;
  positions_[requests_ % kSendDepth] = written_;
  ++requests_;
  if (requests_ - signalled_ >= kSignalEvery || written_ - signalled_position_ >= kSignalBytes) {
    request.send_flags |= IBV_SEND_SIGNALED;
    signalled_ = requests_;
    signalled_position_ = written_;
  }
}

Status VerbsConnection::Post(Chain& chain) {
  if (chain.empty()) {
    return Status::Ok();
  }
  ibv_send_wr* bad = nullptr;
  const int error = ::ibv_post_send(queue_pair_, chain.first(), &bad);
  chain.Clear();
  return error == 0 ? Status::Ok()
                    : Fail(UnavailableError("{}", ErrnoError(error, "ibv_post_send").message()));
}

Status VerbsConnection::SendControl(uint32_t flags) {
  Chain chain;
  AddControl(chain, 0, flags);
  return Post(chain);
}

Result<size_t> VerbsConnection::Put(std::span<const iovec> parts) {
  Chain chain;
  size_t total = 0;
  size_t left = 0;  // Of all parts.
  for (const iovec& part : parts) {
    left += part.iov_len;
  }
  size_t part = 0;
  size_t offset = 0;
  while (left > 0 && MaySend(immediate_ ? 1 : 2, false)) {
    const size_t place = written_ % kRingBytes;
    const size_t bytes = std::min({left, Room(), piece_bytes_, kRingBytes - place});
    if (bytes == 0) {
      break;
    }
    for (size_t done = 0; done < bytes;) {
      const size_t count = std::min(bytes - done, parts[part].iov_len - offset);
      std::memcpy(staging_ + place + done,
                  static_cast<const std::byte*>(parts[part].iov_base) + offset, count);
      done += count;
      offset += count;
      if (offset == parts[part].iov_len) {
        ++part;
        offset = 0;
      }
    }
    written_ += bytes;
    total += bytes;
    left -= bytes;
    AddPiece(chain, place, bytes);
    if (chain.full()) {
      HEDDLE_RETURN_IF_ERROR(Post(chain));
    }
  }
  HEDDLE_RETURN_IF_ERROR(Post(chain));
  return total;
}

Result<size_t> VerbsConnection::Write(std::span<const iovec> parts) {
  if (hung_up_) {
    return UnavailableError("the peer closed the connection");
  }
  HEDDLE_RETURN_IF_ERROR(failure_);
  HEDDLE_ASSIGN_OR_RETURN(const size_t first, Put(parts));
  if (first > 0) {
    return first;
  }
  HEDDLE_RETURN_IF_ERROR(Poll());
  return Put(parts);
}

Result<size_t> VerbsConnection::Read(std::span<std::byte> buffer) {
  // The order matters: what a peer wrote before it hung up is read first.
  const bool hung_up = hung_up_;
  if (arrived_ == consumed_) {
    Poll().IgnoreError("it is kept");
  }
  if (arrived_ == consumed_) {
    if (hung_up || ended_) {
      return UnavailableError("the peer closed the connection");
    }
    HEDDLE_RETURN_IF_ERROR(failure_);
    return size_t{0};
  }
  const size_t place = consumed_ % kRingBytes;
  const size_t count = std::min({buffer.size(), static_cast<size_t>(arrived_ - consumed_)});
  const size_t first = std::min(count, kRingBytes - place);
  std::memcpy(buffer.data(), ring_ + place, first);
  std::memcpy(buffer.data() + first, ring_, count - first);
  consumed_ += count;
  if (failure_.ok()) {
    SendDue().IgnoreError("it is kept");
  }
  return count;
}

void VerbsConnection::CloseWrite() {
  end_due_ = true;
  if (failure_.ok()) {
    SendDue().IgnoreError("it is kept");
  }
}

void VerbsConnection::Reset() {
  if (queue_pair_ != nullptr) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    // What fails here ends with the queue pair's destruction a moment later.
    ::ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  }
  CloseByReset(socket_);
  Fail(CancelledError("the connection was reset")).IgnoreError("it is kept");
}

}  // namespace heddle::comm
