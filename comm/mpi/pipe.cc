#include "comm/mpi/pipe.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heddle::comm {

namespace {
/// Pieces that wait for the MPI thread; it takes them within a turn.
constexpr size_t kQueuedPieces = 4;
}  // namespace

bool MpiPipe::Writable() const {
  return !failure_.ok() || outgoing_.size() < kQueuedPieces ||
         outgoing_.back()->size < kMpiPieceBytes;
}

void MpiPipe::RingIfAwaited() {
  if ((want_read_ && Readable()) || (want_write_ && Writable())) {
    want_read_ = false;
    want_write_ = false;
    const uint64_t one = 1;
    // It fails only when the counter is full, and then the channel is being woken already.
    [[maybe_unused]] const ssize_t written = ::write(notification_.get(), &one, sizeof(one));
  }
}

Result<size_t> MpiPipe::Write(std::span<const iovec> parts) {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) {
    return failure_;
  }
  if (closed_) {
    return UnavailableError("the connection is closed");
  }
  size_t written = 0;
  for (const iovec& part : parts) {
    const auto* source = static_cast<const std::byte*>(part.iov_base);
    size_t left = part.iov_len;
    while (left > 0) {
      if (outgoing_.empty() || outgoing_.back()->size == kMpiPieceBytes) {
        if (outgoing_.size() == kQueuedPieces) {
          return written;
        }
        outgoing_.push_back(std::make_unique_for_overwrite<MpiPiece>());
      }
      MpiPiece& piece = *outgoing_.back();
      const size_t count = std::min(left, kMpiPieceBytes - piece.size);
      std::memcpy(piece.data.data() + piece.size, source, count);
      piece.size += count;
      source += count;
      left -= count;
      written += count;
    }
  }
  return written;
}

Result<size_t> MpiPipe::Read(std::span<std::byte> buffer) {
  const MutexLock lock(mutex_);
  size_t read = 0;
  while (!incoming_.empty() && read < buffer.size()) {
    MpiPiece& piece = *incoming_.front();
    const size_t count = std::min(buffer.size() - read, piece.size - piece.read);
    std::memcpy(buffer.data() + read, piece.data.data() + piece.read, count);
    piece.read += count;
    read += count;
    if (piece.read == piece.size) {
      incoming_.pop_front();
      ++consumed_;
    }
  }
  if (read == 0 && incoming_.empty() && !failure_.ok()) {
    return failure_;
  }
  return read;
}

bool MpiPipe::Arm(bool want_read, bool want_write) {
  const MutexLock lock(mutex_);
  want_read_ = want_read;
  want_write_ = want_write;
  return !(want_read && Readable()) && !(want_write && Writable());
}

void MpiPipe::Close(MpiClose how) {
  const MutexLock lock(mutex_);
  closed_ = true;
  if (how != MpiClose::kWrite) {
    abandoned_ = true;
    consumed_ += static_cast<uint32_t>(incoming_.size());
    incoming_.clear();
  }
  if (how == MpiClose::kReset) {
    outgoing_.clear();
  }
}

std::unique_ptr<MpiPiece> MpiPipe::TakeOutgoing() {
  const MutexLock lock(mutex_);
  if (credits_ == 0 || outgoing_.empty() || !failure_.ok()) {
    return nullptr;
  }
  --credits_;
  auto piece = std::move(outgoing_.front());
  outgoing_.pop_front();
  RingIfAwaited();
  return piece;
}

bool MpiPipe::TakeEnd() {
  const MutexLock lock(mutex_);
  if (!closed_ || end_taken_ || (!outgoing_.empty() && failure_.ok())) {
    return false;
  }
  end_taken_ = true;
  return true;
}

uint32_t MpiPipe::TakeCredits() {
  const MutexLock lock(mutex_);
  return std::exchange(consumed_, 0);
}

Status MpiPipe::Deliver(std::unique_ptr<MpiPiece> piece) {
  const MutexLock lock(mutex_);
  if (incoming_.size() + consumed_ >= kMpiWindow) {
    return DataLossError("the peer overran its window");
  }
  if (abandoned_ || piece->size == 0) {
    ++consumed_;
    return Status::Ok();
  }
  incoming_.push_back(std::move(piece));
  RingIfAwaited();
  return Status::Ok();
}

Status MpiPipe::AddCredits(uint32_t count) {
  const MutexLock lock(mutex_);
  if (count > kMpiWindow - credits_) {
    return DataLossError("{} credits for pieces that were never sent", count);
  }
  credits_ += count;
  return Status::Ok();
}

void MpiPipe::Fail(const Status& reason) {
  const MutexLock lock(mutex_);
  if (failure_.ok()) {
    failure_ = reason;
    RingIfAwaited();
  }
}

}  // namespace heddle::comm
