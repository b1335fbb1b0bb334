/// \file
/// The numbers of a group's collectives.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "comm/communicator.h"
#include "comm/message/call_signature.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// Thread: any.
class CallNumbers {
 public:
  /// Of a group of `members`.
  explicit CallNumbers(int members);

  /// The number of a collective that begins here: the calls of each tag and group of members count
  /// from 1 (0 once there are too many to count). Every call takes one, whatever carries it.
  CallNumber Next(const CollectiveOptions& options, const CallSignature& signature)
      HEDDLE_EXCLUDES(mutex_);

 private:
  uint64_t everyone_ = 0;  ///< The hash of the ranks of all members.
  Mutex mutex_;
  std::unordered_map<MessageKey, uint64_t, MessageKeyHash> calls_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
