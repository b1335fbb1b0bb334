#include "engine/runtime/messages.h"

#include <utility>

#include "base/check.h"
#include "engine/program/memory.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {

Messages::Messages(comm::Communicator* group,
                   Device& device,
                   SharedTensors* shared,
                   DeviceTensors* direct)
    : group_(group),
      device_(device),
      shared_(shared),
      direct_(direct) {}

at::Tensor Messages::Direct(int peer, const graph::TensorType& type) const {
  return direct_ == nullptr ? at::Tensor() : direct_->Empty(peer, type);
}

// True if the network devices of both ends carry the message from memory to memory. Another
// transport copies it, and would then copy it twice.
bool Messages::IsPlaced(int peer, const graph::TensorType& type) const {
  return shared_ != nullptr && type.bytes() >= program::kLeastSharedBytes && group_->places(peer);
}

Copied Messages::Fetch(int peer, const at::Tensor& value, const graph::TensorType& type) {
  if (at::Tensor own = Direct(peer, type); own.defined()) {
    device_.Prepare([own, value] { at::Tensor(own).copy_(value); });
    return {.tensor = std::move(own), .mark = device_.Computed()};
  }
  if (!IsPlaced(peer, type)) {
    return device_.Download(value);
  }
  at::Tensor placed = shared_->Empty(type);
  const Mark mark = device_.DownloadInto(value, placed);
  return {.tensor = std::move(placed), .mark = mark};
}

Status Messages::Send(int peer,
                      uint64_t tag,
                      const at::Tensor& value,
                      const graph::TensorType& type) {
  HEDDLE_RETURN_IF_ERROR(DropEnded());
  Copied message = Fetch(peer, value, type);
  if (message.mark.Ended()) {
    HEDDLE_RETURN_IF_ERROR(message.mark.Wait(Now()));
    Begin(peer, tag, std::move(message.tensor));
    return Status::Ok();
  }
  if (later_ == nullptr) {
    later_ = std::make_unique<TaskQueue>("sends");
  }
  later_->Push(
      [this, peer, tag, message = std::move(message)] { return SendLater(peer, tag, message); });
  return Status::Ok();
}

Status Messages::SendLater(int peer, uint64_t tag, const Copied& message) {
  const Status status = WaitUnless(abandoned_, message.mark);
  if (status.ok()) {
    Begin(peer, tag, message.tensor);
    return status;
  }
  {
    const MutexLock lock(mutex_);
    copy_status_ = status;
  }
  group_->Abort(status);
  return status;
}

void Messages::Begin(int peer, uint64_t tag, at::Tensor tensor) {
  comm::Work work = group_->Send(peer, tag, MemoryOf(tensor), /*urgent=*/true);
  const MutexLock lock(mutex_);
  sends_.push_back({.work = std::move(work), .tensor = std::move(tensor)});
}

Status Messages::DropEnded() {
  const MutexLock lock(mutex_);
  while (!sends_.empty() && sends_.front().work.Done()) {
    HEDDLE_RETURN_IF_ERROR(DeviceTensors::StatusOf(sends_.front().work.Wait()));
    sends_.pop_front();
  }
  return Status::Ok();
}

std::deque<Messages::Transfer> Messages::TakeSends() {
  const MutexLock lock(mutex_);
  return std::exchange(sends_, {});
}

Status Messages::FinishSends() {
  Status first = later_ == nullptr ? Status::Ok() : later_->Drain();
  for (const Transfer& send : TakeSends()) {
    const Status status = DeviceTensors::StatusOf(send.work.Wait());
    if (first.ok()) {
      first = status;
    }
  }
  return first;
}

void Messages::Post(size_t key, int peer, uint64_t tag, const graph::TensorType& type) {
  at::Tensor tensor = Direct(peer, type);
  const bool on_device = tensor.defined();
  if (!on_device) {
    tensor = IsPlaced(peer, type) ? shared_->Empty(type) : device_.HostBuffer(type);
  }
  comm::Work work = group_->Recv(peer, tag, MemoryOf(tensor), /*urgent=*/true);
  posted_.emplace(
      key, Transfer{.work = std::move(work), .tensor = std::move(tensor), .on_device = on_device});
}

Result<Messages::Received> Messages::Receive(size_t key) {
  const auto found = posted_.find(key);
  HEDDLE_CHECK(found != posted_.end(), "message {} was not posted", key);
  if (const Status status = DeviceTensors::StatusOf(found->second.work.Wait()); !status.ok()) {
    const MutexLock lock(mutex_);
    return copy_status_.ok() ? status : copy_status_;
  }
  Received received{.tensor = std::move(found->second.tensor),
                    .on_device = found->second.on_device,
                    .arrived = found->second.work.finished_at()};
  posted_.erase(found);
  if (received.on_device) {
    HEDDLE_RETURN_IF_ERROR(direct_->Flush(received.tensor));
  }
  return received;
}

void Messages::Abandon(const Status& reason) {
  if (group_ == nullptr) {
    return;
  }
  group_->Abort(reason);
  abandoned_.store(true);
  FinishSends().IgnoreError("the step has failed already");
  for (const auto& [key, receive] : posted_) {
    receive.work.Wait().IgnoreError("the step has failed already");
  }
  posted_.clear();
  abandoned_.store(false);
}

void Messages::Clear() {
  TakeSends().clear();
  posted_.clear();
  const MutexLock lock(mutex_);
  copy_status_ = Status::Ok();
}

}  // namespace heddle::runtime
