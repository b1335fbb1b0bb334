#include "comm/message/operation.h"

#include <fmt/format.h>

#include "comm/message/call_signature.h"
#include "comm/message/channel.h"

namespace heddle::comm {

void Operation::Cancel(const Status& status) {
  channel_->CancelOperation(*this, status);
}

void Operation::Drive(Deadline deadline, Patience patience) {
  if (channel_->options().driver != nullptr) {
    channel_->options().driver->Drive(*this, patience, deadline);
  }
}

void Operation::SetAsleep(bool asleep) {
  const ChannelOptions& options = channel_->options();
  if (options.driver != nullptr) {
    options.driver->SetAsleep(asleep);
  }
  if (options.awaited != nullptr) {
    asleep ? options.awaited->Begin(options.peer) : options.awaited->End(options.peer);
  }
}

std::string Operation::Describe() const {
  if (IsForming(key.space)) {
    return fmt::format("forming the group in shared memory with {}", channel_->options().peer_name);
  }
  return fmt::format("{} {} bytes {} {} (tag {})", is_send ? "sending" : "receiving", size,
                     is_send ? "to" : "from", channel_->options().peer_name, key.tag);
}

}  // namespace heddle::comm
