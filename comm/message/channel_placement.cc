// Messages that devices carry from buffer to buffer (transport.h, "Direct placement"): those of
// more than a frame whose buffers are shared buffers at both ends. The receiver's grant names its
// buffer; the sender's device writes there, and a frame behind the last byte says that all is
// there.
//
// A buffer goes back to its owner before the message has come only when a wait was given up or the
// group ends. The connection's registrations go first, so that nothing that comes late can land in
// it. The peer then finds its connection broken; why, the other lane tells.
#include <algorithm>
#include <utility>

#include "comm/message/channel.h"

namespace heddle::comm {

// An emulated link would not see what is placed.
void Channel::Expose(Operation& operation, FrameHeader& grant) {
  if (operation.size < kPlacedBytes || !places() || options_.incoming->limited()) {
    return;
  }
  const std::span<std::byte> bytes(operation.target, operation.size);
  const auto region = options_.regions->Find(bytes);
  if (region == nullptr) {
    return;
  }
  const auto memory = info_.placement->Expose(region, bytes);
  if (!memory.ok()) {
    options_.regions->CountRefused(memory.status().code());
    return;
  }
  operation.exposed = true;
  grant.tag = memory->address;
  grant.space = uint64_t{memory->key} + 1;
}

bool Channel::MayBePlaced(const Operation& operation) const {
  return operation.size >= kPlacedBytes && places() &&
         options_.regions->Find({operation.source, operation.size}) != nullptr;
}

void Channel::PreparePlacing(Operation& operation, const FrameHeader& grant) {
  if (grant.space == 0 || operation.size < kPlacedBytes || !places()) {
    return;
  }
  auto region = options_.regions->Find({operation.source, operation.size});
  if (region == nullptr) {
    return;
  }
  const Status status = info_.placement->Prepare(region);
  if (!status.ok()) {
    options_.regions->CountRefused(status.code());
    return;
  }
  operation.region = std::move(region);
  operation.remote = {.address = grant.tag, .key = static_cast<uint32_t>(grant.space - 1)};
}

Result<size_t> Channel::PlaceSome() {
  const Operation& operation = *out_.operation;
  const RemoteMemory target = {.address = operation.remote.address + operation.offset,
                               .key = operation.remote.key};
  const size_t room = std::min(out_.to_place, operation.size - operation.offset);
  HEDDLE_ASSIGN_OR_RETURN(
      const size_t placed,
      info_.placement->Place(operation.region, {operation.source + operation.offset, room},
                             target));
  options_.placed_bytes->Add(static_cast<double>(placed));
  given_ += placed;
  out_.operation->offset += placed;
  out_.to_place -= placed;
  return placed;
}

// Behind a message's last piece goes the frame that tells of it.
void Channel::EndPiece() {
  if (out_.to_place > 0) {
    return;
  }
  const std::shared_ptr<Operation> operation = std::move(out_.operation);
  out_ = Outgoing{};
  sending_ = operation->offset == operation->size;
  if (!sending_) {
    granted_.push_back(operation);
    return;
  }
  out_.header.generation = generation_;
  out_.header.kind = FrameKind::kPlaced;
  out_.header.id = operation->id;
  CountFrame();
  placing_.push_back({.position = given_, .operation = operation});
}

void Channel::EndPlaced() {
  if (!places()) {
    return;
  }
  const uint64_t placed = info_.placement->placed();  // Always: the connection waits to tell of it.
  for (; !placing_.empty() && placing_.front().position <= placed; placing_.pop_front()) {
    ++moved_;
    const std::shared_ptr<Operation>& operation = placing_.front().operation;
    operation->region = nullptr;  // A finished Work does not keep the buffer.
    operation->Complete(Status::Ok());
  }
}

Status Channel::HandlePlaced() {
  const auto found = expected_.find(in_.id);
  if (found == expected_.end()) {
    return Status::Ok();  // Its receive was given up.
  }
  if (!found->second->exposed || found->second->offset > 0) {
    return DataLossError("message {} placed where it was not to be", in_.id);
  }
  const std::shared_ptr<Operation> operation = std::move(found->second);
  expected_.erase(found);
  moved_ += operation->size;
  options_.received_bytes->Add(static_cast<double>(operation->size));
  operation->Complete(Status::Ok());
  return Status::Ok();
}

bool Channel::IsInDevice(const Operation& operation) {
  return operation.exposed || (operation.region != nullptr && operation.offset > 0);
}

bool Channel::IsPlacing() const {
  const auto in_device = [](const auto& operation) {
    return operation != nullptr && IsInDevice(*operation);
  };
  return !placing_.empty() || in_device(out_.operation) ||
         std::any_of(granted_.begin(), granted_.end(), in_device) ||
         std::any_of(expected_.begin(), expected_.end(),
                     [&](const auto& entry) { return in_device(entry.second); });
}

}  // namespace heddle::comm
