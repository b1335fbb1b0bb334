/// \file
/// Assigns numbers to a group's collectives.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "comm/communicator.h"
#include "comm/message/call_signature.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// The counters of a group's collectives. Thread: any.
class CallNumbers {
 public:
  /// `members`: how many members the group has.
  explicit CallNumbers(int members);

  /// The number of a collective that begins on this worker. The calls of each pair of tag and
  /// member ranks are counted from 1; the ordinal is 0 for a new pair once 65,536 are counted.
  /// Every collective takes a number, whether messages or shared memory carry it. The urgency of
  /// `options` becomes that of `signature`.
  CallNumber Next(const CollectiveOptions& options, CallSignature signature)
      HEDDLE_EXCLUDES(mutex_);

 private:
  uint64_t everyone_ = 0;  ///< The hash of the ranks of all members.
  Mutex mutex_;
  std::unordered_map<MessageKey, uint64_t, MessageKeyHash> calls_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
