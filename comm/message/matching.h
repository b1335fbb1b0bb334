/// \file
/// Which message goes into which Recv: those of one key meet in the order in which they were sent
/// and posted, whichever comes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "comm/message/operation.h"

namespace heddle::comm {

/// A message that came before its Recv.
struct EarlyMessage {
  uint64_t request = 0;      ///< Rendezvous number; 0: eager, its bytes are here or arriving.
  uint16_t other_class = 0;  ///< As in its first frame.
  size_t size = 0;
  Bytes data;
  bool whole = false;
  std::shared_ptr<Operation> taken_by;  ///< A Recv that found it half arrived.
  /// Such a Recv did not fit or was given up: the rest is dropped as it arrives.
  bool dropped = false;
};

/// A message that nobody has asked for yet.
struct UnexpectedMessage {
  MessageKey key;
  uint16_t other_class =
      0;  ///< Frames that the peer had begun on the pair's other traffic class before.
};

/// Thread: its channel's lock.
class Matching {
 public:
  /// A message with `key` begins: the Recv that takes it; null: there is none yet.
  std::shared_ptr<Operation> TakePosted(const MessageKey& key);
  void Keep(const MessageKey& key, std::shared_ptr<EarlyMessage> early);

  /// A Recv with `key` begins: the message that it takes; null: there is none yet. Front stays.
  std::shared_ptr<EarlyMessage> FrontEarly(const MessageKey& key) const;
  std::shared_ptr<EarlyMessage> TakeEarly(const MessageKey& key);
  void Post(std::shared_ptr<Operation> operation);

  void Forget(const Operation& operation);
  void TakePosted(Operations& into);
  void DropEarly() { early_.clear(); }

  bool has_posted() const { return !posted_.empty(); }
  bool HasPosted(const KeyPredicate& fits) const;
  /// The first of each key that fits.
  std::vector<UnexpectedMessage> Unexpected(const KeyPredicate& fits) const;

 private:
  template <typename T>
  using ByKey = std::unordered_map<MessageKey, std::deque<std::shared_ptr<T>>, MessageKeyHash>;

  template <typename T>
  static std::shared_ptr<T> TakeFirst(ByKey<T>& table, const MessageKey& key);

  ByKey<Operation> posted_;
  ByKey<EarlyMessage> early_;
};

}  // namespace heddle::comm
