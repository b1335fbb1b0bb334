/// \file
/// A Send or Recv in flight on a channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/message/work.h"
#include "comm/stream/frame.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

class Channel;

/// The channel's lock guards the fields.
class Operation : public Work::State {
 public:
  /// `channel` cancels and drives the operation. Null in tests of a channel's parts that do not
  /// wait.
  Operation(Duration timeout, std::shared_ptr<Channel> channel)
      : State(timeout),
        channel_(std::move(channel)) {}

  void Cancel(const Status& status) override;
  void Drive(Deadline deadline, Patience patience) override;
  void SetAsleep(bool asleep) override;
  std::string Describe() const override;

  MessageKey key;
  bool is_send = false;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  size_t size = 0;
  size_t offset = 0;  ///< Bytes sent or received so far.
  uint64_t id = 0;    ///< Rendezvous number.
  // Placement (placement.h).
  bool in_device = false;  ///< Its memory is a device's: it is placed, or fails.
  bool exposed = false;    ///< A Recv whose buffer the peer's device may write into.
  std::shared_ptr<const SharedRegion> region;  ///< Source region of a Send that is placed.
  RemoteMemory remote;                         ///< Target memory of a Send that is placed.

 private:
  const std::shared_ptr<Channel> channel_;
};

using Operations = std::vector<std::shared_ptr<Operation>>;

/// Selects messages by key. Pure.
using KeyPredicate = std::function<bool(const MessageKey&)>;

/// Whether `operation` is not null and its key is selected.
inline bool Fits(const KeyPredicate& fits, const std::shared_ptr<Operation>& operation) {
  return operation != nullptr && fits(operation->key);
}

}  // namespace heddle::comm
