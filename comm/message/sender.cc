#include "comm/message/sender.h"

#include <algorithm>
#include <utility>

namespace heddle::comm {

namespace {
constexpr size_t kPumpBudget = size_t{2} << 20;  ///< Bytes per turn of a channel.
}  // namespace

void Sender::QueueControl(const FrameHeader& header, std::string_view text) {
  const auto bytes = AsBytes(text.substr(0, kAbortTextBytes));
  Control frame{.header = header, .payload = Bytes(bytes.begin(), bytes.end())};
  frame.header.generation = generation_;
  frame.header.length = static_cast<uint32_t>(bytes.size());
  control_.push_back(std::move(frame));
}

void Sender::QueueControl(FrameKind kind, uint64_t id, uint64_t total) {
  FrameHeader header;
  header.kind = kind;
  header.id = id;
  header.total = total;
  QueueControl(header);
}

Result<bool> Sender::Pump() {
  placement_.EndArrived();
  stream_.BeginWriting();
  for (size_t budget = kPumpBudget; budget > 0;) {
    if (!sending() && !NextFrame()) {
      stream_.EndWriting();
      return false;
    }
    if (!stream_.MayWrite()) {
      return true;
    }
    const bool places = to_place_ > 0;
    HEDDLE_ASSIGN_OR_RETURN(const size_t written, places ? PlaceSome() : WriteSome());
    if (written == 0) {  // The peer is slower than the link.
      stream_.EndWriting();
      return true;
    }
    stream_.Wrote(written);
    budget -= std::min(budget, written);
    if (places) {
      EndPiece();
    } else if (writer_.Wrote(written)) {
      EndFrame();
    }
  }
  stream_.ResumeAt(Now());
  return true;
}

Result<size_t> Sender::WriteSome() {
  return stream_.connection().Write(writer_.Parts(stream_.PieceBytes(kPumpBudget)));
}

Result<size_t> Sender::PlaceSome() {
  HEDDLE_ASSIGN_OR_RETURN(const size_t placed, placement_.Place(*operation_, to_place_));
  to_place_ -= placed;
  return placed;
}

bool Sender::HasOutput() const {
  return sending() || !control_.empty() || !messages_.empty() || !granted_.empty();
}

bool Sender::NextFrame() {
  if (control_.empty()) {
    return StartMessage() || StartChunk();
  }
  Control frame = std::move(control_.front());
  control_.pop_front();
  Count(frame.header);
  writer_.Begin(frame.header, std::move(frame.payload));
  return true;
}

void Sender::Count(FrameHeader& header) {
  const TrafficClass traffic_class = stream_.meter().traffic_class;
  header.other_class = frames_->sent[IndexOf(OtherTrafficClass(traffic_class))].load();
  frames_->sent[IndexOf(traffic_class)].fetch_add(1);
}

void Sender::Begin(FrameHeader header, std::shared_ptr<Operation> operation) {
  header.generation = generation_;
  Count(header);
  writer_.Begin(header, operation == nullptr ? nullptr : operation->source + operation->offset);
  operation_ = std::move(operation);
}

// A message's first frame: the whole of it if it is small and the window has room, else a request.
bool Sender::StartMessage() {
  if (messages_.empty()) {
    return false;
  }
  const std::shared_ptr<Operation>& operation = messages_.front();
  const bool eager = !operation->in_device && operation->size <= kEagerBytes &&
                     credit_.CanSpend(EagerCost(operation->size)) &&
                     !placement_.MayPlace(*operation);
  if (!eager && requests_.full()) {
    return false;
  }
  FrameHeader header;
  header.tag = operation->key.tag;
  header.space = operation->key.space;
  header.total = operation->size;
  if (eager) {
    credit_.Spend(EagerCost(operation->size));
    header.kind = FrameKind::kEager;
    header.length = static_cast<uint32_t>(operation->size);
    Begin(header, operation);
  } else {
    requests_.Announce(operation);
    header.kind = FrameKind::kRequest;
    header.id = operation->id;
    Begin(header, nullptr);
  }
  messages_.pop_front();
  return true;
}

bool Sender::StartChunk() {
  if (granted_.empty()) {
    return false;
  }
  std::shared_ptr<Operation> operation = std::move(granted_.front());
  granted_.pop_front();
  const size_t chunk =
      std::min(stream_.PieceBytes(kChunkBytes), operation->size - operation->offset);
  if (operation->region != nullptr) {
    operation_ = std::move(operation);
    to_place_ = chunk;
    return true;
  }
  FrameHeader header;
  header.kind = FrameKind::kData;
  header.id = operation->id;
  header.length = static_cast<uint32_t>(chunk);
  header.total = operation->size;
  Begin(header, std::move(operation));
  return true;
}

void Sender::EndFrame() {
  const std::shared_ptr<Operation> operation = std::exchange(operation_, nullptr);
  if (operation == nullptr) {
    return;
  }
  operation->offset += writer_.header().length;
  if (operation->offset == operation->size) {
    operation->Complete(Status::Ok());
  } else {
    granted_.push_front(operation);  // All at once would all end late, and none would be seen to.
  }
}

// Behind a message's last piece goes the frame that tells of it.
void Sender::EndPiece() {
  if (to_place_ > 0) {
    return;
  }
  std::shared_ptr<Operation> operation = std::exchange(operation_, nullptr);
  if (operation->offset < operation->size) {
    granted_.push_front(std::move(operation));
    return;
  }
  FrameHeader header;
  header.kind = FrameKind::kPlaced;
  header.id = operation->id;
  Begin(header, nullptr);
  placement_.AllGiven(std::move(operation));
}

Status Sender::OnAnswer(const FrameHeader& answer, std::string_view peer_name) {
  HEDDLE_ASSIGN_OR_RETURN(const auto operation, requests_.Answer(answer.id));
  if (operation == nullptr) {
    return Status::Ok();
  }
  if (answer.kind == FrameKind::kGrant) {
    placement_.Prepare(*operation, answer);
    if (operation->region == nullptr && (operation->in_device || answer.total != 0)) {
      QueueControl(FrameKind::kUnplaced, operation->id, 0);
      operation->Complete(Placement::Unplaced(peer_name));
      return Status::Ok();
    }
    granted_.push_back(operation);
  } else if (answer.space != 0) {
    operation->Complete(Placement::Unplaced(peer_name));
  } else {
    operation->Complete(InvalidArgumentError("{} expects {} bytes where {} are sent", peer_name,
                                             answer.total, operation->size));
  }
  return Status::Ok();
}

void Sender::Forget(const Operation& operation) {
  const auto is_it = [&](const auto& other) { return other.get() == &operation; };
  for (auto* queue : {&messages_, &granted_}) {
    std::erase_if(*queue, is_it);
  }
  requests_.GiveUp(operation);
  if (is_it(operation_)) {
    to_place_ = 0;
    writer_.Own();
    operation_ = nullptr;
  }
}

void Sender::TakeAll(Operations& into) {
  for (auto* queue : {&messages_, &granted_}) {
    std::move(queue->begin(), queue->end(), std::back_inserter(into));
    queue->clear();
  }
  requests_.GiveUpAll(into);
  if (operation_ != nullptr) {
    into.push_back(operation_);
    Forget(*into.back());
  }
}

bool Sender::Has(const KeyPredicate& fits) const {
  const auto in_queue = [&](const auto& queue) {
    return std::any_of(queue.begin(), queue.end(),
                       [&](const auto& operation) { return Fits(fits, operation); });
  };
  return requests_.Has(fits) || in_queue(messages_) || in_queue(granted_) || Fits(fits, operation_);
}

bool Sender::IsPlacing() const {
  const auto in_device = [](const auto& operation) {
    return operation != nullptr && Placement::IsInDevice(*operation);
  };
  return !placement_.empty() || in_device(operation_) ||
         std::any_of(granted_.begin(), granted_.end(), in_device);
}

}  // namespace heddle::comm
