#include "comm/transport/verbs/verbs_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include <arpa/inet.h>
#include <sys/mman.h>

namespace heddle::comm {

Status VerbsBuffers::Allocate(ibv_pd* domain) {
  void* memory =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "mmap");
  }
  memory_ = static_cast<std::byte*>(memory);
  ring_region_.reset(
      ::ibv_reg_mr(domain, ring(), ring_bytes_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  if (ring_region_ != nullptr) {
    own_region_.reset(
        ::ibv_reg_mr(domain, staging(), bytes_ - ring_bytes_, int{IBV_ACCESS_LOCAL_WRITE}));
  }
  return own_region_ != nullptr ? Status::Ok()
                                : VerbsResourceError(errno, "registering memory for RDMA");
}

VerbsBuffers::~VerbsBuffers() {
  // The fence: after this no write of a peer that was given up can land here.
  ring_region_.reset();
  own_region_.reset();
  if (memory_ != nullptr) {
    ::munmap(memory_, bytes_);
  }
}

Status VerbsStream::Allocate() {
  HEDDLE_RETURN_IF_ERROR(buffers_.Allocate(queue_pair_.device()->domain()));
  return queue_pair_.Allocate();
}

Status VerbsStream::MakeQueuePair(VerbsHandle<rdma_event_channel> manager,
                                  VerbsHandle<rdma_cm_id> id) {
  HEDDLE_RETURN_IF_ERROR(queue_pair_.Make(std::move(manager), std::move(id)));
  std::array<uint32_t, StreamCredit::kReceives> slots{};
  std::iota(slots.begin(), slots.end(), 0U);
  return queue_pair_.PostReceives(slots, buffers_.received(), buffers_.own_key());
}

VerbsHello VerbsStream::Hello() const {
  VerbsHello hello = queue_pair_.Hello();
  hello.ring_address = reinterpret_cast<uint64_t>(buffers_.ring());
  hello.ring_key = buffers_.ring_key();
  hello.ring_bytes = static_cast<uint32_t>(buffers_.ring_bytes());
  hello.receives = StreamCredit::kReceives;
  return hello;
}

Status VerbsStream::Join(const VerbsHello& peer) {
  peer_ring_ = peer.ring_address;
  peer_key_ = peer.ring_key;
  credit_.SetPeer(peer.receives);
  return peer.kind == RdmaKind::kIwarp ? Status::Ok() : queue_pair_.Join(peer);
}

Result<bool> VerbsStream::Probed() {
  // Bytes that the peer wrote after its probe wait in the ring.
  HEDDLE_RETURN_IF_ERROR(Await());
  return probed_;
}

Status VerbsStream::Await() {
  // Armed first, then looked again.
  queue_pair_.Arm();
  return Poll();
}

Status VerbsStream::CheckSending() const {
  return hung_up_ ? UnavailableError("the peer closed the connection") : queue_pair_.failure();
}

Status VerbsStream::Poll() {
  constexpr int kBatch = VerbsQueuePair::kBatch;
  std::array<ibv_wc, kBatch> batch;
  std::array<uint32_t, kBatch> used{};
  bool more = true;
  // Bounded: the peer's credit, which only reading renews, is less than the queue holds.
  while (more && queue_pair_.failure().ok()) {
    HEDDLE_ASSIGN_OR_RETURN(const auto completions, queue_pair_.Poll(batch));
    more = completions.size() == batch.size();
    size_t received = 0;
    for (const ibv_wc& completion : completions) {
      if (completion.status != IBV_WC_SUCCESS) {
        return queue_pair_.Fail(queue_pair_.CompletionError(completion));
      }
      if ((completion.wr_id & VerbsQueuePair::kReceiveBit) == 0) {
        requests_.Complete(completion.wr_id);
        continue;
      }
      if (const Status status = Received(completion); !status.ok()) {
        return queue_pair_.Fail(status);
      }
      used[received++] = static_cast<uint32_t>(completion.wr_id);
    }
    HEDDLE_RETURN_IF_ERROR(queue_pair_.PostReceives(std::span(used).first(received),
                                                    buffers_.received(), buffers_.own_key()));
    credit_.Repost(received);
  }
  return queue_pair_.failure().ok() ? SendDue() : queue_pair_.failure();
}

Status VerbsStream::Received(const ibv_wc& completion) {
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    return credit_.Arrive(ntohl(completion.imm_data));
  }
  ControlMessage message;
  if (completion.opcode != IBV_WC_RECV || completion.byte_len != sizeof(message)) {
    return DataLossError("an RDMA message of {} bytes", completion.byte_len);
  }
  const auto slot = static_cast<uint32_t>(completion.wr_id);
  std::memcpy(&message, buffers_.received() + slot * sizeof(message), sizeof(message));
  HEDDLE_RETURN_IF_ERROR(credit_.Take(message, requests_.given().streamed));
  if (ended_ && message.arrived > 0) {
    return DataLossError("bytes after the end");
  }
  probed_ = probed_ || (message.flags & ControlMessage::kProbe) != 0;
  ended_ = ended_ || (message.flags & ControlMessage::kEnd) != 0;
  return credit_.Arrive(message.arrived);
}

Status VerbsStream::SendDue() {
  if (!requests_.MayAdd(1, true) || !credit_.MaySend(true)) {
    return Status::Ok();
  }
  if (std::exchange(end_due_, false)) {
    return SendControl(ControlMessage::kEnd);
  }
  return credit_.Due() ? SendControl(0) : Status::Ok();
}

void VerbsStream::End() {
  end_due_ = true;
  if (queue_pair_.failure().ok()) {
    SendDue().IgnoreError("it is kept");
  }
}

Status VerbsStream::SendControl(uint32_t flags) {
  VerbsChain chain(requests_);
  AddControl(chain, 0, flags);
  return queue_pair_.Post(chain);
}

void VerbsStream::AddControl(VerbsChain& chain, uint32_t arrived, uint32_t flags) {
  const ControlMessage message = credit_.Return(arrived, flags);
  std::byte* place = buffers_.sent(requests_.next());
  std::memcpy(place, &message, sizeof(message));
  ibv_send_wr& request = chain.Add(place, sizeof(message), buffers_.own_key(), {});
  request.opcode = IBV_WR_SEND;
  request.send_flags |= queue_pair_.sends_inline() ? static_cast<unsigned int>(IBV_SEND_INLINE) : 0;
}

void VerbsStream::AddPiece(VerbsChain& chain, size_t place, size_t bytes) {
  ibv_send_wr& request =
      chain.Add(buffers_.staging() + place, bytes, buffers_.own_key(), {.streamed = bytes});
  request.wr.rdma.remote_addr = peer_ring_ + place;
  request.wr.rdma.rkey = peer_key_;
  if (queue_pair_.device()->writes_with_immediate()) {
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(static_cast<uint32_t>(bytes));
    credit_.Send();
    return;
  }
  request.opcode = IBV_WR_RDMA_WRITE;
  AddControl(chain, static_cast<uint32_t>(bytes), 0);
}

bool VerbsStream::writable() const {
  return requests_.MayAdd(queue_pair_.device()->writes_with_immediate() ? 1 : 2, false) &&
         credit_.MaySend(false) && requests_.StreamRoom(credit_.peer_consumed()) > 0;
}

Result<size_t> VerbsStream::Put(std::span<const iovec> parts) {
  VerbsChain chain(requests_);
  size_t total = 0;
  size_t left = 0;  // Bytes left of all parts.
  for (const iovec& part : parts) {
    left += part.iov_len;
  }
  size_t part = 0;
  size_t offset = 0;
  while (left > 0 && writable()) {
    const size_t place = requests_.given().streamed % buffers_.ring_bytes();
    const size_t bytes = std::min({left, requests_.StreamRoom(credit_.peer_consumed()),
                                   queue_pair_.piece_bytes(), buffers_.ring_bytes() - place});
    for (size_t done = 0; done < bytes;) {
      const size_t count = std::min(bytes - done, parts[part].iov_len - offset);
      std::memcpy(buffers_.staging() + place + done,
                  static_cast<const std::byte*>(parts[part].iov_base) + offset, count);
      done += count;
      offset += count;
      if (offset == parts[part].iov_len) {
        ++part;
        offset = 0;
      }
    }
    total += bytes;
    left -= bytes;
    AddPiece(chain, place, bytes);
    if (chain.full()) {
      HEDDLE_RETURN_IF_ERROR(queue_pair_.Post(chain));
    }
  }
  HEDDLE_RETURN_IF_ERROR(queue_pair_.Post(chain));
  return total;
}

Result<size_t> VerbsStream::Write(std::span<const iovec> parts) {
  HEDDLE_RETURN_IF_ERROR(CheckSending());
  HEDDLE_ASSIGN_OR_RETURN(const size_t first, Put(parts));
  if (first > 0) {
    return first;
  }
  HEDDLE_RETURN_IF_ERROR(Poll());
  return Put(parts);
}

Result<size_t> VerbsStream::Read(std::span<std::byte> buffer) {
  // The order matters: what a peer wrote before it hung up is read first.
  const bool hung_up = hung_up_;
  if (!readable()) {
    Poll().IgnoreError("it is kept");
  }
  if (!readable()) {
    if (hung_up || ended_) {
      return UnavailableError("the peer closed the connection");
    }
    HEDDLE_RETURN_IF_ERROR(queue_pair_.failure());
    return size_t{0};
  }
  const size_t place = credit_.consumed() % buffers_.ring_bytes();
  const size_t count = std::min(buffer.size(), credit_.readable());
  const size_t first = std::min(count, buffers_.ring_bytes() - place);
  std::memcpy(buffer.data(), buffers_.ring() + place, first);
  std::memcpy(buffer.data() + first, buffers_.ring(), count - first);
  credit_.Consume(count);
  if (queue_pair_.failure().ok()) {
    SendDue().IgnoreError("it is kept");
  }
  return count;
}

}  // namespace heddle::comm
