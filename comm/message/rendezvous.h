/// \file
/// The rendezvous protocol: the sender announces a message by a request with a number, from 1
/// upwards, and the receiver replies to each request once, with a grant or a reject. At most
/// kRequestLimit requests may wait for a reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "base/status.h"
#include "comm/message/operation.h"

namespace heddle::comm {

/// The sender's end. Thread: guarded by its channel's lock.
class Requests {
 public:
  /// Whether no further message may be announced before a reply arrives.
  bool full() const { return unanswered_ >= kRequestLimit; }
  bool empty() const { return waiting_.empty(); }
  /// Assigns `operation` the next number. Must not be called when full.
  void Announce(const std::shared_ptr<Operation>& operation);
  /// Removes and returns the Send that request `id` announced, when its reply arrives; null: the
  /// Send was given up. Errors: kDataLoss (no request of this number waits for a reply).
  Result<std::shared_ptr<Operation>> Answer(uint64_t id);
  /// Gives up a Send whose reply is still to come.
  void GiveUp(const Operation& operation);
  /// Gives up all Sends and moves them to `into`.
  void GiveUpAll(Operations& into);
  bool Has(const KeyPredicate& fits) const;

 private:
  uint64_t next_id_ = 1;
  size_t unanswered_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> waiting_;
  std::unordered_set<uint64_t> given_up_;
};

/// The receiver's end. Thread: guarded by its channel's lock.
class Grants {
 public:
  /// Checks the number of a request that arrives. Errors: kDataLoss (it is not greater than those
  /// before).
  Status Announced(uint64_t id);
  /// Counts a request that waits for its Recv. Errors: kDataLoss (more than kRequestLimit wait).
  Status Hold();
  /// Counts a waiting request whose Recv has been posted.
  void Release();
  /// Records that `operation` was granted to message `id`, whose bytes are to arrive.
  void Expect(uint64_t id, std::shared_ptr<Operation> operation);
  /// The Recv granted to message `id`; null: none, or it was given up.
  std::shared_ptr<Operation> Find(uint64_t id) const;
  /// Forgets message `id`, which has arrived in whole.
  void End(uint64_t id) { expected_.erase(id); }
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  bool empty() const { return expected_.empty(); }
  bool Has(const KeyPredicate& fits) const;
  /// Whether the buffer of a granted Recv is exposed to the peer's device.
  bool HasExposed() const;
  size_t held() const { return held_; }

 private:
  uint64_t last_announced_ = 0;
  size_t held_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> expected_;
};

}  // namespace heddle::comm
