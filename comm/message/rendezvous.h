/// \file
/// Messages that ask before they come: the sender announces each under a number, from 1 upwards,
/// and the receiver answers each number once, with a grant or a reject. Only so many may wait for
/// their answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "base/status.h"
#include "comm/message/operation.h"

namespace heddle::comm {

/// The sender's end. Thread: its channel's lock.
class Requests {
 public:
  /// No further message may be announced before one is answered.
  bool full() const { return unanswered_ >= kRequestLimit; }
  bool empty() const { return waiting_.empty(); }
  /// Gives `operation` its number. Not when full.
  void Announce(const std::shared_ptr<Operation>& operation);
  /// The receiver has answered `id`: the Send that waited; null when it was given up meanwhile.
  /// Errors: kDataLoss (no message of this number waits for an answer).
  Result<std::shared_ptr<Operation>> Answer(uint64_t id);
  /// Nobody waits for `operation` any more; its answer is still to come.
  void GiveUp(const Operation& operation);
  /// All of them.
  void GiveUpAll(Operations& into);
  bool Has(const KeyPredicate& fits) const;

 private:
  uint64_t next_id_ = 1;
  size_t unanswered_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> waiting_;
  std::unordered_set<uint64_t> given_up_;
};

/// The receiver's end. Thread: its channel's lock.
class Grants {
 public:
  /// A request has come. Errors: kDataLoss (its number is not above those before).
  Status Announced(uint64_t id);
  /// It finds no Recv and waits for one. Errors: kDataLoss (more wait than may).
  Status Hold();
  /// One that waited has its Recv.
  void Release();
  /// `operation` is granted to message `id`, whose bytes are to come.
  void Expect(uint64_t id, std::shared_ptr<Operation> operation);
  /// What message `id` was granted; null: nothing, or its Recv was given up.
  std::shared_ptr<Operation> Find(uint64_t id) const;
  /// Message `id` has come.
  void End(uint64_t id) { expected_.erase(id); }
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  bool empty() const { return expected_.empty(); }
  bool Has(const KeyPredicate& fits) const;
  /// Whether the buffer of one is exposed to the peer's device.
  bool HasExposed() const;
  size_t held() const { return held_; }

 private:
  uint64_t last_announced_ = 0;
  size_t held_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> expected_;
};

}  // namespace heddle::comm
