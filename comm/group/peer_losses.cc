#include "comm/group/peer_losses.h"

namespace heddle::comm {

void PeerLosses::Add(int peer, const Status& reason) {
  const MutexLock lock(mutex_);
  losses_.emplace_back(peer, reason);
}

void PeerLosses::Deliver() {
  const MutexLock handler_lock(handler_mutex_);
  if (!handler_) {
    return;
  }
  std::vector<std::pair<int, Status>> losses;
  {
    const MutexLock lock(mutex_);
    losses.swap(losses_);
  }
  for (const auto& [peer, status] : losses) {
    handler_(peer, status);
  }
}

void PeerLosses::SetHandler(Handler handler) {
  {
    const MutexLock lock(handler_mutex_);
    handler_ = std::move(handler);
  }
  // Delivers the losses before the handler was set.
  loop_->Post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->Deliver();
    }
  });
}

void PeerLosses::DropHandler() {
  const MutexLock lock(handler_mutex_);
  handler_ = nullptr;
}

}  // namespace heddle::comm
