// The sending half of a channel: which frame goes next, and handing it to the connection.
#include <algorithm>
#include <utility>

#include "comm/message/channel.h"

namespace heddle::comm {

namespace {
constexpr size_t kPumpBudget = size_t{2} << 20;  ///< Bytes before others get their turn.
}  // namespace

Status Channel::Pump() {
  EndPlaced();
  out_limited_ = false;
  for (size_t budget = kPumpBudget; budget > 0;) {
    if (!sending_ && !NextFrame()) {
      SetWaiting(out_waits_, false, *options_.outgoing);
      if (phase_ == Phase::kLingering && !write_closed_) {
        write_closed_ = true;
        connection_->Close(Connection::Ending::kWriting);
      }
      return Status::Ok();
    }
    const Time now = options_.outgoing->NowIfLimited();
    const Time ready = options_.outgoing->ReadyAt(options_.lane, now);
    if (ready > now) {
      out_limited_ = true;
      SetWaiting(out_waits_, true, *options_.outgoing);
      RunLater(ready);
      return Status::Ok();
    }
    const bool places = out_.to_place > 0;
    HEDDLE_ASSIGN_OR_RETURN(const size_t written, places ? PlaceSome() : WriteSome());
    if (written == 0) {  // The peer is slower than the link.
      SetWaiting(out_waits_, false, *options_.outgoing);
      return Status::Ok();
    }
    options_.outgoing->Charge(written, now);
    options_.sent_bytes->Add(static_cast<double>(written));
    bytes_sent_.fetch_add(static_cast<int64_t>(written));
    moved_ += written;
    budget -= std::min(budget, written);
    if (places) {
      EndPiece();
    } else if (out_.done == sizeof(FrameHeader) + out_.header.length) {
      EndOutgoing();
    }
  }
  RunLater(Now());
  return Status::Ok();
}

Result<size_t> Channel::WriteSome() {
  std::array<iovec, 2> parts{};
  size_t count = 0;
  if (out_.done < sizeof(FrameHeader)) {
    parts[count++] = {reinterpret_cast<std::byte*>(&out_.header) + out_.done,
                      sizeof(FrameHeader) - out_.done};
  }
  const size_t payload_done = out_.done < sizeof(FrameHeader) ? 0 : out_.done - sizeof(FrameHeader);
  if (payload_done < out_.header.length) {
    const std::byte* payload = out_.payload == nullptr ? out_.owned.data() : out_.payload;
    const size_t room = options_.outgoing->PieceBytes(kPumpBudget);
    parts[count++] = {const_cast<std::byte*>(payload) + payload_done,
                      std::min(room, out_.header.length - payload_done)};
  }
  HEDDLE_ASSIGN_OR_RETURN(const size_t written, connection_->Write(std::span(parts).first(count)));
  out_.done += written;
  return written;
}

void Channel::SetWaiting(bool& waits, bool now_waits, TokenBucket& bucket) const {
  if (waits != now_waits) {
    waits = now_waits;
    bucket.AddWaiting(options_.lane, now_waits ? 1 : -1, Now());
  }
}

bool Channel::HasOutput() const {
  return sending_ || !control_.empty() || !messages_.empty() || !granted_.empty();
}

bool Channel::NextFrame() {
  if (!control_.empty()) {
    out_ = std::move(control_.front());
    control_.pop_front();
    sending_ = true;
  } else if (!StartMessage() && !StartChunk()) {
    return false;
  }
  if (out_.to_place == 0) {
    CountFrame();
  }
  return true;
}

void Channel::CountFrame() {
  out_.header.other_lane = options_.frames->sent[IndexOf(OtherLane(options_.lane))].load();
  options_.frames->sent[IndexOf(options_.lane)].fetch_add(1);
}

// A message's first frame: the whole of it if it is small and the window has room, else a request.
bool Channel::StartMessage() {
  if (messages_.empty()) {
    return false;
  }
  const std::shared_ptr<Operation>& operation = messages_.front();
  const bool eager = operation->size <= kEagerBytes && EagerCost(operation->size) <= credit_ &&
                     !MayBePlaced(*operation);
  if (!eager && requests_ >= kRequestLimit) {
    return false;
  }
  out_ = Outgoing{};
  out_.header.generation = generation_;
  out_.header.tag = operation->key.tag;
  out_.header.space = operation->key.space;
  out_.header.total = operation->size;
  if (eager) {
    credit_ -= EagerCost(operation->size);
    out_.header.kind = FrameKind::kEager;
    out_.header.length = static_cast<uint32_t>(operation->size);
    out_.payload = operation->source;
    out_.operation = operation;
  } else {
    ++requests_;
    operation->id = next_id_++;
    out_.header.kind = FrameKind::kRequest;
    out_.header.id = operation->id;
    asked_.emplace(operation->id, operation);
  }
  messages_.pop_front();
  sending_ = true;
  return true;
}

bool Channel::StartChunk() {
  if (granted_.empty()) {
    return false;
  }
  const std::shared_ptr<Operation> operation = std::move(granted_.front());
  granted_.pop_front();
  const size_t chunk =
      std::min(options_.outgoing->PieceBytes(kChunkBytes), operation->size - operation->offset);
  out_ = Outgoing{};
  out_.operation = operation;
  sending_ = true;
  if (operation->region != nullptr) {
    out_.to_place = chunk;
    return true;
  }
  out_.header.generation = generation_;
  out_.header.kind = FrameKind::kData;
  out_.header.id = operation->id;
  out_.header.length = static_cast<uint32_t>(chunk);
  out_.header.total = operation->size;
  out_.payload = operation->source + operation->offset;
  return true;
}

void Channel::EndOutgoing() {
  const std::shared_ptr<Operation> operation = std::move(out_.operation);
  const size_t length = out_.header.length;
  sending_ = false;
  out_ = Outgoing{};
  if (operation == nullptr) {
    return;
  }
  operation->offset += length;
  if (operation->offset == operation->size) {
    operation->Complete(Status::Ok());
  } else {
    granted_.push_back(operation);
  }
}

void Channel::QueueControl(FrameKind kind, uint64_t id, uint64_t total, std::string_view text) {
  Outgoing frame;
  frame.header.generation = generation_;
  frame.header.kind = kind;
  frame.header.id = id;
  frame.header.total = total;
  const auto bytes = AsBytes(text.substr(0, kAbortTextBytes));
  frame.header.length = static_cast<uint32_t>(bytes.size());
  frame.owned.assign(bytes.begin(), bytes.end());
  control_.push_back(std::move(frame));
}

}  // namespace heddle::comm
