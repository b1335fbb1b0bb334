#include "comm/message/receiver.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace heddle::comm {

namespace {
/// Steps per turn of a channel: 2 MiB of payload that is read directly into its buffer.
constexpr size_t kStepBudget = 512;
}  // namespace

Receiver::Receiver(uint32_t generation,
                   MeteredStream& stream,
                   Sender& sender,
                   Placement& placement,
                   std::shared_ptr<FrameCounts> frames,
                   std::string peer_name,
                   std::shared_ptr<WaitReports> reports)
    : stream_(stream),
      sender_(sender),
      placement_(placement),
      frames_(std::move(frames)),
      peer_name_(std::move(peer_name)),
      reports_(std::move(reports)),
      reader_(generation) {}

Status Receiver::Receive(const Work::State* awaited) {
  stream_.BeginReading();
  for (size_t steps = kStepBudget; steps > 0; --steps) {
    HEDDLE_ASSIGN_OR_RETURN(const FrameReader::Step step, reader_.Advance(stream_));
    switch (step) {
      case FrameReader::Step::kStarved:
        return Status::Ok();
      case FrameReader::Step::kMoved:
        break;
      case FrameReader::Step::kBegan:
        HEDDLE_RETURN_IF_ERROR(BeginFrame(reader_.header()));
        break;
      case FrameReader::Step::kEnded:
        HEDDLE_RETURN_IF_ERROR(EndFrame(reader_.header()));
        if (awaited != nullptr && awaited->Done()) {
          return Status::Ok();
        }
        break;
    }
  }
  stream_.ResumeAt(Now());
  return Status::Ok();
}

Status Receiver::BeginFrame(const FrameHeader& frame) {
  switch (frame.kind) {
    case FrameKind::kEager:
      return BeginEager(frame);
    case FrameKind::kRequest:
      return BeginRequest(frame);
    case FrameKind::kData:
      return BeginData(frame);
    case FrameKind::kGrant:
    case FrameKind::kReject:
      return sender_.OnAnswer(frame, peer_name_);
    case FrameKind::kCredit:
      return sender_.OnCredit(frame);
    case FrameKind::kAbort:
      text_.resize(frame.length);
      reader_.SetTarget(text_.data());
      return Status::Ok();
    case FrameKind::kGoodbye:
      return Status::Ok();
    case FrameKind::kWaiting:
      if (reports_ != nullptr) {
        reports_->OnReport(frame);
      }
      return Status::Ok();
    case FrameKind::kPlaced:
      return OnPlaced(frame);
    case FrameKind::kUnplaced:
      OnUnplaced(frame);
      return Status::Ok();
  }
  return Status::Ok();
}

Status Receiver::CheckFit(size_t sent, bool eager, const Operation& posted) const {
  if (sent != posted.size) {
    return InvalidArgumentError("{} sends {} bytes where {} are expected", peer_name_, sent,
                                posted.size);
  }
  return eager && posted.in_device ? Placement::Unplaced(peer_name_) : Status::Ok();
}

Status Receiver::BeginEager(const FrameHeader& frame) {
  HEDDLE_RETURN_IF_ERROR(window_.Take(EagerCost(frame.length)));
  const MessageKey key{frame.tag, frame.space};
  operation_ = matching_.TakePosted(key);
  if (operation_ == nullptr) {
    early_ = std::make_shared<EarlyMessage>();
    early_->other_class = frame.other_class;
    early_->size = frame.length;
    early_->data.resize(frame.length);
    reader_.SetTarget(early_->data.data());
    matching_.Keep(key, early_);
    return Status::Ok();
  }
  if (const Status fit = CheckFit(frame.length, true, *operation_); !fit.ok()) {
    operation_->Complete(fit);
    operation_ = nullptr;
    return Status::Ok();
  }
  reader_.SetTarget(operation_->target);
  return Status::Ok();
}

Status Receiver::BeginRequest(const FrameHeader& frame) {
  const MessageKey key{frame.tag, frame.space};
  HEDDLE_RETURN_IF_ERROR(grants_.Announced(frame.id));
  std::shared_ptr<Operation> operation = matching_.TakePosted(key);
  if (operation != nullptr) {
    if (const Status fit = CheckFit(frame.total, false, *operation); fit.ok()) {
      Grant(frame.id, std::move(operation));
    } else {
      operation->Complete(fit);
      Reject(frame.id, operation->size);
    }
    return Status::Ok();
  }
  HEDDLE_RETURN_IF_ERROR(grants_.Hold());
  auto early = std::make_shared<EarlyMessage>();
  early->request = frame.id;
  early->other_class = frame.other_class;
  early->size = frame.total;
  early->whole = true;
  matching_.Keep(key, std::move(early));
  return Status::Ok();
}

void Receiver::Grant(uint64_t id, std::shared_ptr<Operation> operation) {
  FrameHeader grant;
  grant.kind = FrameKind::kGrant;
  grant.id = id;
  placement_.Expose(*operation, grant);
  if (operation->in_device && !operation->exposed) {
    grant.kind = FrameKind::kReject;
    grant.space = 1;
    sender_.QueueControl(grant);
    operation->Complete(Placement::Unplaced(peer_name_));
    return;
  }
  sender_.QueueControl(grant);
  grants_.Expect(id, std::move(operation));
}

Status Receiver::BeginData(const FrameHeader& frame) {
  const std::shared_ptr<Operation> operation = grants_.Find(frame.id);
  if (operation == nullptr) {
    return Status::Ok();  // The Recv was given up: the bytes are dropped.
  }
  if (frame.length > operation->size - operation->offset || operation->in_device ||
      (frame.length == 0 && operation->size > 0)) {
    return DataLossError("{} bytes at {} of a message of {}", frame.length, operation->offset,
                         operation->size);
  }
  operation_ = operation;
  reader_.SetTarget(operation->target + operation->offset);
  return Status::Ok();
}

Status Receiver::OnPlaced(const FrameHeader& frame) {
  const std::shared_ptr<Operation> operation = grants_.Find(frame.id);
  if (operation == nullptr) {
    return Status::Ok();  // The Recv was given up.
  }
  if (!operation->exposed || operation->offset > 0) {
    return DataLossError("message {} placed where it was not to be", frame.id);
  }
  grants_.End(frame.id);
  stream_.CountMoved(operation->size);
  stream_.CountReceived(operation->size);
  operation->Complete(Status::Ok());
  return Status::Ok();
}

void Receiver::OnUnplaced(const FrameHeader& frame) {
  if (const std::shared_ptr<Operation> operation = grants_.Find(frame.id); operation != nullptr) {
    grants_.End(frame.id);
    operation->Complete(Placement::Unplaced(peer_name_));
  }
}

Status Receiver::EndFrame(const FrameHeader& frame) {
  frames_->received[IndexOf(stream_.meter().traffic_class)].fetch_add(1);
  const std::shared_ptr<Operation> operation = std::exchange(operation_, nullptr);
  const std::shared_ptr<EarlyMessage> early = std::exchange(early_, nullptr);
  switch (frame.kind) {
    case FrameKind::kEager:
      EndEager(frame, operation, early);
      return Status::Ok();
    case FrameKind::kData:
      if (operation != nullptr) {
        operation->offset += frame.length;
        if (operation->offset == operation->size) {
          grants_.End(operation->id);
          operation->Complete(Status::Ok());
        }
      }
      return Status::Ok();
    case FrameKind::kAbort:
      return AbortedError(
          "{}", std::string_view(reinterpret_cast<const char*>(text_.data()), text_.size()));
    case FrameKind::kGoodbye:
      return CancelledError("left the group");
    default:
      return Status::Ok();
  }
}

void Receiver::EndEager(const FrameHeader& frame,
                        const std::shared_ptr<Operation>& operation,
                        const std::shared_ptr<EarlyMessage>& early) {
  if (early == nullptr) {
    FreeWindow(frame.length);
    if (operation != nullptr) {
      operation->Complete(Status::Ok());
    }
    return;
  }
  early->whole = true;
  if (early->taken_by != nullptr) {
    std::copy(early->data.begin(), early->data.end(), early->taken_by->target);
    FreeWindow(early->size);
    early->taken_by->Complete(Status::Ok());
  } else if (early->dropped) {
    FreeWindow(early->size);
  }
}

void Receiver::FreeWindow(size_t message_bytes) {
  if (const size_t credit = window_.Free(EagerCost(message_bytes)); credit > 0) {
    sender_.QueueControl(FrameKind::kCredit, 0, credit);
  }
}

bool Receiver::HasWhole(const MessageKey& key) const {
  const auto early = matching_.FrontEarly(key);
  return early != nullptr && early->request == 0 && early->whole;
}

void Receiver::Take(std::shared_ptr<Operation> operation) {
  const std::shared_ptr<EarlyMessage> early = matching_.TakeEarly(operation->key);
  if (early == nullptr) {
    matching_.Post(std::move(operation));
    return;
  }
  if (early->request != 0) {
    grants_.Release();
  }
  if (const Status fit = CheckFit(early->size, early->request == 0, *operation); !fit.ok()) {
    operation->Complete(fit);
    if (early->request != 0) {
      Reject(early->request, operation->size);
    } else if (early->whole) {
      FreeWindow(early->size);
    } else {
      early->dropped = true;
    }
  } else if (early->request != 0) {
    Grant(early->request, std::move(operation));
  } else if (!early->whole) {
    early->taken_by = std::move(operation);
  } else {
    std::copy(early->data.begin(), early->data.end(), operation->target);
    FreeWindow(early->size);
    operation->Complete(Status::Ok());
  }
}

void Receiver::Forget(const Operation& operation) {
  grants_.Forget(operation);
  if (!operation.is_send) {
    matching_.Forget(operation);
  }
  if (operation_.get() == &operation) {
    operation_ = nullptr;
    reader_.SetTarget(nullptr);
  }
  if (early_ != nullptr && early_->taken_by.get() == &operation) {
    early_->taken_by = nullptr;
    early_->dropped = true;
  }
}

void Receiver::TakeAll(Operations& into) {
  grants_.TakeAll(into);
  matching_.TakePosted(into);
  if (operation_ != nullptr) {
    into.push_back(std::exchange(operation_, nullptr));
    reader_.SetTarget(nullptr);
  }
  if (early_ != nullptr && early_->taken_by != nullptr) {
    into.push_back(std::exchange(early_->taken_by, nullptr));
    early_->dropped = true;
  }
}

bool Receiver::InFlight() const {
  return matching_.has_posted() || !grants_.empty() || operation_ != nullptr || early_ != nullptr;
}

// A message that has begun to arrive is in no table any more; it counts, because a peer may fall
// silent in the middle of a frame.
bool Receiver::Has(const KeyPredicate& fits) const {
  return matching_.HasPosted(fits) || grants_.Has(fits) || Fits(fits, operation_) ||
         (early_ != nullptr && Fits(fits, early_->taken_by));
}

}  // namespace heddle::comm
