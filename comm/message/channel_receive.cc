// The receiving half of a channel: parsing frames and matching them with posted receives.
#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/message/channel.h"

namespace heddle::comm {

namespace {
constexpr size_t kReceiveBudget = size_t{2} << 20;  ///< Bytes before others get their turn.
constexpr size_t kDirectBytes = 4096;  ///< From here on payload is read straight into its buffer.
}  // namespace

Status Channel::Receive(const Work::State* awaited) {
  in_limited_ = false;
  in_drained_ = false;
  for (size_t rounds = kReceiveBudget / kDirectBytes; rounds > 0; --rounds) {
    if (receiving_) {
      HEDDLE_ASSIGN_OR_RETURN(const bool moved, ReadPayload());
      if (in_left_ == 0) {
        HEDDLE_RETURN_IF_ERROR(EndFrame());
        if (awaited != nullptr && awaited->Done()) {
          return Status::Ok();
        }
      } else if (!moved) {
        return Status::Ok();
      }
      continue;
    }
    if (stage_end_ - stage_begin_ < sizeof(FrameHeader)) {
      HEDDLE_ASSIGN_OR_RETURN(const bool moved, FillStage());
      if (!moved) {
        return Status::Ok();
      }
      continue;
    }
    std::memcpy(&in_, stage_.data() + stage_begin_, sizeof(FrameHeader));
    stage_begin_ += sizeof(FrameHeader);
    HEDDLE_RETURN_IF_ERROR(CheckFrame(in_, generation_));
    in_left_ = in_.length;
    in_target_ = nullptr;
    receiving_ = true;
    HEDDLE_RETURN_IF_ERROR(BeginFrame());
  }
  RunLater(Now());
  return Status::Ok();
}

Result<size_t> Channel::ReadSome(std::span<std::byte> buffer) {
  if (in_drained_) {
    return size_t{0};
  }
  const Time now = options_.incoming->NowIfLimited();
  if (!peer_hung_up_) {  // A peer that is gone no longer keeps the link busy: learn its end at
                         // once.
    const Time ready = options_.incoming->ReadyAt(options_.lane, now);
    if (ready > now) {
      in_limited_ = true;
      SetWaiting(in_waits_, true, *options_.incoming);
      RunLater(ready);
      return size_t{0};
    }
  }
  const size_t piece = std::min(buffer.size(), options_.incoming->PieceBytes(kChunkBytes));
  HEDDLE_ASSIGN_OR_RETURN(const size_t read, connection_->Read(buffer.first(piece)));
  if (read > 0) {
    options_.incoming->Charge(read, now);
    options_.received_bytes->Add(static_cast<double>(read));
    moved_ += read;
  }
  in_drained_ = read < piece;
  if (in_drained_) {
    SetWaiting(in_waits_, false, *options_.incoming);
  }
  return read;
}

Result<bool> Channel::FillStage() {
  if (stage_begin_ > 0) {
    std::memmove(stage_.data(), stage_.data() + stage_begin_, stage_end_ - stage_begin_);
    stage_end_ -= stage_begin_;
    stage_begin_ = 0;
  }
  HEDDLE_ASSIGN_OR_RETURN(const size_t read, ReadSome(std::span(stage_).subspan(stage_end_)));
  stage_end_ += read;
  return read > 0;
}

Result<bool> Channel::ReadPayload() {
  const size_t staged = std::min(stage_end_ - stage_begin_, in_left_);
  if (staged > 0) {
    if (in_target_ != nullptr) {
      std::memcpy(in_target_, stage_.data() + stage_begin_, staged);
      in_target_ += staged;
    }
    stage_begin_ += staged;
    in_left_ -= staged;
    return true;
  }
  if (in_left_ == 0) {
    return false;
  }
  if (in_target_ == nullptr || in_left_ < kDirectBytes) {
    return FillStage();
  }
  HEDDLE_ASSIGN_OR_RETURN(const size_t read, ReadSome(std::span(in_target_, in_left_)));
  in_target_ += read;
  in_left_ -= read;
  return read > 0;
}

Status Channel::BeginFrame() {
  switch (in_.kind) {
    case FrameKind::kEager:
      return BeginEager();
    case FrameKind::kRequest:
      return BeginRequest();
    case FrameKind::kData:
      return BeginData();
    case FrameKind::kGrant:
      return HandleGrant(true);
    case FrameKind::kReject:
      return HandleGrant(false);
    case FrameKind::kCredit:
      if (in_.total > kEagerWindow - credit_) {
        return DataLossError("credit of {} bytes that were never used", in_.total);
      }
      credit_ += in_.total;
      return Status::Ok();
    case FrameKind::kAbort:
      in_text_.resize(in_.length);
      in_target_ = in_text_.data();
      return Status::Ok();
    case FrameKind::kGoodbye:
      return Status::Ok();
    case FrameKind::kWaiting:
      NoteWaiting(in_);
      return Status::Ok();
    case FrameKind::kPlaced:
      return HandlePlaced();
  }
  return Status::Ok();
}

std::shared_ptr<Operation> Channel::TakePosted(const MessageKey& key) {
  const auto found = posted_.find(key);
  if (found == posted_.end()) {
    return nullptr;
  }
  std::shared_ptr<Operation> operation = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    posted_.erase(found);
  }
  return operation;
}

Status Channel::MismatchError(size_t sent, size_t posted) const {
  return InvalidArgumentError("{} sends {} bytes where {} are expected", options_.peer_name, sent,
                              posted);
}

Status Channel::BeginEager() {
  eager_held_ += EagerCost(in_.length);
  if (eager_held_ > kEagerWindow) {
    return DataLossError("more eager bytes than the window has");
  }
  const MessageKey key{in_.tag, in_.space};
  in_operation_ = TakePosted(key);
  if (in_operation_ == nullptr) {
    in_early_ = std::make_shared<Early>();
    in_early_->other_lane = in_.other_lane;
    in_early_->size = in_.length;
    in_early_->data.resize(in_.length);
    in_target_ = in_early_->data.data();
    early_[key].push_back(in_early_);
    return Status::Ok();
  }
  if (in_operation_->size != in_.length) {
    in_operation_->Complete(MismatchError(in_.length, in_operation_->size));
    in_operation_ = nullptr;
    return Status::Ok();
  }
  in_target_ = in_operation_->target;
  return Status::Ok();
}

Status Channel::BeginRequest() {
  const MessageKey key{in_.tag, in_.space};
  if (in_.id <= last_announced_) {
    return DataLossError("message {} announced after message {}", in_.id, last_announced_);
  }
  last_announced_ = in_.id;
  std::shared_ptr<Operation> operation = TakePosted(key);
  if (operation != nullptr) {
    if (operation->size == in_.total) {
      Grant(in_.id, std::move(operation));
    } else {
      operation->Complete(MismatchError(in_.total, operation->size));
      QueueControl(FrameKind::kReject, in_.id, operation->size);
    }
    return Status::Ok();
  }
  if (++requests_held_ > kRequestLimit) {
    return DataLossError("more than {} messages wait for a receive", kRequestLimit);
  }
  auto early = std::make_shared<Early>();
  early->request = in_.id;
  early->other_lane = in_.other_lane;
  early->size = in_.total;
  early->whole = true;
  early_[key].push_back(std::move(early));
  return Status::Ok();
}

void Channel::Grant(uint64_t id, std::shared_ptr<Operation> operation) {
  operation->id = id;
  QueueControl(FrameKind::kGrant, id, 0);
  Expose(*operation, control_.back().header);
  expected_[id] = std::move(operation);
}

Status Channel::BeginData() {
  const auto found = expected_.find(in_.id);
  if (found == expected_.end()) {
    return Status::Ok();  // Its receive was given up: the bytes are dropped.
  }
  const std::shared_ptr<Operation>& operation = found->second;
  if (in_.length > operation->size - operation->offset ||
      (in_.length == 0 && operation->size > 0)) {
    return DataLossError("{} bytes at {} of a message of {}", in_.length, operation->offset,
                         operation->size);
  }
  in_operation_ = operation;
  in_target_ = operation->target + operation->offset;
  return Status::Ok();
}

Status Channel::HandleGrant(bool granted) {
  const auto found = asked_.find(in_.id);
  if (found == asked_.end()) {
    if (given_up_.erase(in_.id) == 0) {
      return DataLossError("grant of message {} that waits for none", in_.id);
    }
    --requests_;
    return Status::Ok();
  }
  --requests_;
  const std::shared_ptr<Operation> operation = std::move(found->second);
  asked_.erase(found);
  if (granted) {
    PreparePlacing(*operation, in_);
    granted_.push_back(operation);
  } else {
    operation->Complete(InvalidArgumentError("{} expects {} bytes where {} are sent",
                                             options_.peer_name, in_.total, operation->size));
  }
  return Status::Ok();
}

Status Channel::EndFrame() {
  receiving_ = false;
  options_.frames->received[IndexOf(options_.lane)].fetch_add(1);
  const std::shared_ptr<Operation> operation = std::exchange(in_operation_, nullptr);
  const std::shared_ptr<Early> early = std::exchange(in_early_, nullptr);
  switch (in_.kind) {
    case FrameKind::kEager:
      if (early == nullptr) {
        ReturnCredit(EagerCost(in_.length));
        if (operation != nullptr) {
          operation->Complete(Status::Ok());
        }
      } else {
        early->whole = true;
        if (early->taken_by != nullptr) {
          std::copy(early->data.begin(), early->data.end(), early->taken_by->target);
          ReturnCredit(EagerCost(early->size));
          early->taken_by->Complete(Status::Ok());
        }
      }
      return Status::Ok();
    case FrameKind::kData:
      if (operation != nullptr) {
        operation->offset += in_.length;
        if (operation->offset == operation->size) {
          expected_.erase(operation->id);
          operation->Complete(Status::Ok());
        }
      }
      return Status::Ok();
    case FrameKind::kAbort:
      return AbortedError(
          "{}", std::string_view(reinterpret_cast<const char*>(in_text_.data()), in_text_.size()));
    case FrameKind::kGoodbye:
      return CancelledError("left the group");
    default:
      return Status::Ok();
  }
}

void Channel::ReturnCredit(size_t bytes) {
  eager_freed_ += bytes;
  if (eager_freed_ >= kEagerWindow / 4) {
    eager_held_ -= eager_freed_;
    QueueControl(FrameKind::kCredit, 0, std::exchange(eager_freed_, 0));
  }
}

std::shared_ptr<Operation> Channel::Recv(MessageKey key, std::span<std::byte> data) {
  auto operation = std::make_shared<Operation>(options_.operation_timeout, shared_from_this());
  operation->key = key;
  operation->target = data.data();
  operation->size = data.size();
  const MutexLock lock(mutex_);
  const auto found = early_.find(key);
  // What a peer sent before it left is still there for us.
  const bool whole =
      found != early_.end() && found->second.front()->request == 0 && found->second.front()->whole;
  if (phase_ != Phase::kOpen && !whole) {
    operation->Complete(failure_);
    return operation;
  }
  if (found == early_.end()) {
    posted_[key].push_back(operation);
    return operation;
  }
  const std::shared_ptr<Early> early = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    early_.erase(found);
  }
  requests_held_ -= early->request != 0 ? 1 : 0;
  if (early->size != data.size()) {
    operation->Complete(MismatchError(early->size, data.size()));
    if (early->request != 0) {
      QueueControl(FrameKind::kReject, early->request, data.size());
    } else if (early->whole) {
      ReturnCredit(EagerCost(early->size));
    }
  } else if (early->request != 0) {
    Grant(early->request, operation);
  } else if (!early->whole) {
    early->taken_by = operation;
  } else {
    std::copy(early->data.begin(), early->data.end(), operation->target);
    ReturnCredit(EagerCost(early->size));
    operation->Complete(Status::Ok());
  }
  PumpFromCaller();
  return operation;
}

}  // namespace heddle::comm
