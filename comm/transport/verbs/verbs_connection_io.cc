// The streams of a connection over RDMA: pieces and control messages out, completions in.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>

#include "comm/transport/ip_socket.h"
#include "comm/transport/verbs/verbs_chain.h"
#include "comm/transport/verbs/verbs_connection.h"

namespace heddle::comm {

namespace {

constexpr uint64_t kReceiveBit = uint64_t{1} << 63;  ///< Of a work request's number.
constexpr int kBatch = 32;

}  // namespace

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
      return VerbsPostError(error, "ibv_post_recv");
    }
  }
  return Status::Ok();
}

std::array<Connection::Watch, 2> VerbsConnection::Watches(bool want_read, bool want_write) {
  return {Watch{.fd = channel_->fd, .events = want_read || want_write ? EPOLLIN : 0U},
          Watch{.fd = watched_.get(), .events = EPOLLIN}};
}

Connection::Watch VerbsConnection::SleepOn(bool /*want_write*/) const {
  return {.fd = channel_->fd, .events = EPOLLIN};
}

void VerbsConnection::TakeCompletionEvent() {
  ibv_cq* completions = nullptr;
  void* context = nullptr;
  if (::ibv_get_cq_event(channel_, &completions, &context) == 0) {
    armed_ = false;
    if (++unacknowledged_ == kBatch) {  // Each acknowledgement takes a lock.
      ::ibv_ack_cq_events(completions_, std::exchange(unacknowledged_, 0));
    }
  }
}

void VerbsConnection::OnReady(int fd, uint32_t /*events*/) {
  if (fd == channel_->fd) {
    TakeCompletionEvent();
    return;
  }
  std::array<epoll_event, 4> ready{};
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
  if (!want_read && !want_write) {
    return true;
  }
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
  const bool room =
      place_full_ ? PlaceRoom() > 0 : Room() > 0 && MaySend(immediate_ ? 1 : 2, false);
  const bool arrived = placed_ != reported_placed_;
  return !readable && !arrived && !(want_write && (over || room));
}

Status VerbsConnection::Fail(const Status& status) {
  if (failure_.ok()) {
    failure_ = status;
  }
  return failure_;
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
  confirmed_ = positions_[request % kSendDepth].written;
  placed_ = positions_[request % kSendDepth].given;
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
  if (bytes > ring_bytes_ - (arrived_ - consumed_)) {
    return DataLossError("more bytes than the RDMA ring holds");
  }
  arrived_ += bytes;
  return Status::Ok();
}

size_t VerbsConnection::Room() const {
  // Free at the peer, and no longer needed here should the device have to send it again.
  return ring_bytes_ - static_cast<size_t>(written_ - std::min(peer_consumed_, confirmed_));
}

bool VerbsConnection::MaySend(uint32_t requests, bool control) const {
  const uint64_t kept = control ? 0 : kReserve;
  return requests_ - completed_ + requests + kept <= kSendDepth &&
         messages_ - peer_reposted_ + 1 + kept <= peer_receives_;
}

bool VerbsConnection::CreditIsDue() const {
  return consumed_ - announced_consumed_ >= ring_bytes_ / 4 ||
         reposted_ - announced_reposted_ >= kReceives / 4;
}

Status VerbsConnection::SendDue() {
  if (end_due_ && MaySend(1, true)) {
    end_due_ = false;
    return SendControl(kEnd);
  }
  return CreditIsDue() && MaySend(1, true) ? SendControl(0) : Status::Ok();
}

void VerbsConnection::AddControl(VerbsChain& chain, uint32_t arrived, uint32_t flags) {
  const ControlMessage message{
      .consumed = consumed_, .reposted = reposted_, .arrived = arrived, .flags = flags};
  announced_consumed_ = consumed_;
  announced_reposted_ = reposted_;
  std::byte* place = sent_ + (requests_ % kSendDepth) * sizeof(ControlMessage);
  std::memcpy(place, &message, sizeof(message));
  ibv_send_wr& request = chain.Add(place, sizeof(message), own_region_->lkey);
  request.opcode = IBV_WR_SEND;
  request.send_flags = inline_control_ ? static_cast<unsigned int>(IBV_SEND_INLINE) : 0;
  Number(request);
  ++messages_;
}

void VerbsConnection::AddPiece(VerbsChain& chain, size_t place, size_t bytes) {
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

void VerbsConnection::Number(ibv_send_wr& request, bool last) {
  request.wr_id = requests_;
  positions_[requests_ % kSendDepth] = {.written = written_, .given = given_};
  ++requests_;
  if (last || requests_ - signalled_ >= kSignalEvery ||
      written_ + given_ - signalled_position_ >= ring_bytes_ / kSignalPart) {
    request.send_flags |= IBV_SEND_SIGNALED;
    signalled_ = requests_;
    signalled_position_ = written_ + given_;
  }
}

Status VerbsConnection::Post(VerbsChain& chain) {
  if (chain.empty()) {
    return Status::Ok();
  }
  ibv_send_wr* bad = nullptr;
  const int error = ::ibv_post_send(queue_pair_, chain.first(), &bad);
  chain.Clear();
  return error == 0 ? Status::Ok() : Fail(VerbsPostError(error, "ibv_post_send"));
}

Status VerbsConnection::SendControl(uint32_t flags) {
  VerbsChain chain;
  AddControl(chain, 0, flags);
  return Post(chain);
}

Result<size_t> VerbsConnection::Put(std::span<const iovec> parts) {
  VerbsChain chain;
  size_t total = 0;
  size_t left = 0;  // Of all parts.
  for (const iovec& part : parts) {
    left += part.iov_len;
  }
  size_t part = 0;
  size_t offset = 0;
  while (left > 0 && MaySend(immediate_ ? 1 : 2, false)) {
    const size_t place = written_ % ring_bytes_;
    const size_t bytes = std::min({left, Room(), piece_bytes_, ring_bytes_ - place});
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
  place_full_ = false;
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
  const size_t place = consumed_ % ring_bytes_;
  const size_t count = std::min({buffer.size(), static_cast<size_t>(arrived_ - consumed_)});
  const size_t first = std::min(count, ring_bytes_ - place);
  std::memcpy(buffer.data(), ring_ + place, first);
  std::memcpy(buffer.data() + first, ring_, count - first);
  consumed_ += count;
  if (failure_.ok()) {
    SendDue().IgnoreError("it is kept");
  }
  return count;
}

void VerbsConnection::Close(Ending how) {
  if (how == Ending::kAtOnce) {
    StopQueuePair();
    CloseByReset(socket_);
    Fail(CancelledError("the connection was reset")).IgnoreError("it is kept");
    return;
  }
  end_due_ = true;
  if (failure_.ok()) {
    SendDue().IgnoreError("it is kept");
  }
}

}  // namespace heddle::comm
