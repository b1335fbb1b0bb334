#include "comm/stream/metered_stream.h"

#include <algorithm>

#include "comm/stream/frame.h"

namespace heddle::comm {

void MeteredStream::BeginReading() {
  in_limited_ = false;
  in_drained_ = false;
}

Result<size_t> MeteredStream::Read(std::span<std::byte> buffer) {
  if (in_drained_) {
    return size_t{0};
  }
  const Time now = meter_.incoming->NowIfLimited();
  if (!peer_hung_up_) {
    const Time ready = meter_.incoming->ReadyAt(meter_.traffic_class, now);
    if (ready > now) {
      in_limited_ = true;
      SetWaiting(in_waits_, true, *meter_.incoming);
      ResumeAt(ready);
      return size_t{0};
    }
  }
  const size_t piece = std::min(buffer.size(), meter_.incoming->PieceBytes(kChunkBytes));
  HEDDLE_ASSIGN_OR_RETURN(const size_t read, connection_->Read(buffer.first(piece)));
  if (read > 0) {
    meter_.incoming->Charge(read, now);
    CountReceived(read);
    moved_ += read;
  }
  in_drained_ = read < piece;
  if (in_drained_) {
    SetWaiting(in_waits_, false, *meter_.incoming);
  }
  return read;
}

bool MeteredStream::MayWrite() {
  write_began_ = meter_.outgoing->NowIfLimited();
  const Time ready = meter_.outgoing->ReadyAt(meter_.traffic_class, write_began_);
  if (ready > write_began_) {
    out_limited_ = true;
    SetWaiting(out_waits_, true, *meter_.outgoing);
    ResumeAt(ready);
    return false;
  }
  return true;
}

void MeteredStream::Wrote(size_t bytes) {
  meter_.outgoing->Charge(bytes, write_began_);
  meter_.sent_bytes->Add(static_cast<double>(bytes));
  bytes_sent_.fetch_add(static_cast<int64_t>(bytes));
  moved_ += bytes;
}

void MeteredStream::CountShared(int64_t sent, int64_t received) {
  bytes_sent_.fetch_add(sent);
  meter_.sent_bytes->Add(static_cast<double>(sent));
  meter_.received_bytes->Add(static_cast<double>(received));
}

void MeteredStream::Close() {
  connection_.reset();
  SetWaiting(out_waits_, false, *meter_.outgoing);
  SetWaiting(in_waits_, false, *meter_.incoming);
}

void MeteredStream::SetWaiting(bool& waits, bool now_waits, TokenBucket& bucket) const {
  if (waits != now_waits) {
    waits = now_waits;
    bucket.AddWaiting(meter_.traffic_class, now_waits ? 1 : -1, Now());
  }
}

}  // namespace heddle::comm
