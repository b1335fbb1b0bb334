#include "comm/message/placement.h"

#include <algorithm>
#include <utility>

namespace heddle::comm {

namespace {
/// Whether placement is faster than the stream, or the only way.
bool IsLarge(const Operation& operation) {
  return operation.in_device || operation.size >= kPlacedBytes;
}
}  // namespace

// An emulated link would not see what is placed.
void Placement::Expose(Operation& operation, FrameHeader& grant) {
  if (!IsLarge(operation) || device_ == nullptr || stream_.meter().incoming->limited()) {
    return;
  }
  const std::span<std::byte> bytes(operation.target, operation.size);
  const auto region = regions_->FindAny(bytes);
  if (region == nullptr) {
    return;
  }
  const auto memory = device_->Expose(region, bytes);
  if (!memory.ok()) {
    regions_->CountRefused(memory.status().code());
    return;
  }
  operation.exposed = true;
  grant.total = operation.in_device ? 1 : 0;
  grant.tag = memory->address;
  grant.space = uint64_t{memory->key} + 1;
}

Status Placement::RegisterDeviceMemory(std::span<const std::byte> bytes) {
  const auto region = device_ == nullptr ? nullptr : regions_->FindAny(bytes);
  if (region == nullptr || !region->in_device()) {
    return UnimplementedError("no device memory that could be registered");
  }
  const Status status = device_->Prepare(region);
  if (!status.ok()) {
    regions_->CountRefused(status.code());
  }
  return status;
}

bool Placement::MayPlace(const Operation& operation) const {
  return operation.size >= kPlacedBytes && device_ != nullptr &&
         regions_->Find({operation.source, operation.size}) != nullptr;
}

void Placement::Prepare(Operation& operation, const FrameHeader& grant) {
  if (grant.space == 0 || device_ == nullptr || !(grant.total == 1 || IsLarge(operation))) {
    return;
  }
  auto region = regions_->FindAny({operation.source, operation.size});
  if (region == nullptr) {
    return;
  }
  const Status status = device_->Prepare(region);
  if (!status.ok()) {
    regions_->CountRefused(status.code());
    return;
  }
  operation.region = std::move(region);
  operation.remote = {.address = grant.tag, .key = static_cast<uint32_t>(grant.space - 1)};
}

Result<size_t> Placement::Place(Operation& operation, size_t room) {
  const RemoteMemory target = {.address = operation.remote.address + operation.offset,
                               .key = operation.remote.key};
  const size_t most = std::min(room, operation.size - operation.offset);
  HEDDLE_ASSIGN_OR_RETURN(
      const size_t placed,
      device_->Place(operation.region, {operation.source + operation.offset, most}, target));
  placed_bytes_->Add(static_cast<double>(placed));
  given_ += placed;
  operation.offset += placed;
  return placed;
}

void Placement::AllGiven(std::shared_ptr<Operation> operation) {
  in_device_.push_back({.position = given_, .operation = std::move(operation)});
}

void Placement::EndArrived() {
  if (device_ == nullptr) {
    return;
  }
  const uint64_t placed = device_->placed();  // Always: the connection waits to tell of it.
  for (; !in_device_.empty() && in_device_.front().position <= placed; in_device_.pop_front()) {
    stream_.CountMoved(1);
    const std::shared_ptr<Operation>& operation = in_device_.front().operation;
    operation->region = nullptr;  // A finished Work does not keep the buffer.
    operation->Complete(Status::Ok());
  }
}

void Placement::Withdraw() {
  device_->Withdraw();
}

void Placement::Forget(const Operation& operation) {
  std::erase_if(in_device_,
                [&](const Given& given) { return given.operation.get() == &operation; });
}

void Placement::TakeAll(Operations& into) {
  for (Given& given : in_device_) {
    into.push_back(std::move(given.operation));
  }
  in_device_.clear();
}

bool Placement::Has(const KeyPredicate& fits) const {
  return std::any_of(in_device_.begin(), in_device_.end(),
                     [&](const Given& given) { return Fits(fits, given.operation); });
}

}  // namespace heddle::comm
