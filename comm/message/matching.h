/// \file
/// Matches messages with Recvs. Messages and Recvs of one key match in the order in which they were
/// sent and posted, whichever comes first.
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

/// A message that arrived, or was announced, before its Recv.
struct EarlyMessage {
  uint64_t request = 0;      ///< Rendezvous number; 0: eager, its bytes are here or arriving.
  uint16_t other_class = 0;  ///< FrameHeader::other_class of its first frame.
  size_t size = 0;
  Bytes data;
  bool whole = false;
  std::shared_ptr<Operation> taken_by;  ///< The Recv that took it before it was whole.
  /// The Recv that took it before it was whole did not fit or was given up; the rest is dropped.
  bool dropped = false;
};

/// A message without a Recv yet.
struct UnexpectedMessage {
  MessageKey key;
  uint16_t other_class =
      0;  ///< Frames that the peer had begun on the pair's other traffic class before it.
};

/// The tables of posted Recvs and early messages. Thread: guarded by its channel's lock.
class Matching {
 public:
  /// Removes and returns the Recv for a message with `key` that begins; null: there is none yet.
  std::shared_ptr<Operation> TakePosted(const MessageKey& key);
  void Keep(const MessageKey& key, std::shared_ptr<EarlyMessage> early);

  /// The message for a Recv with `key`; null: there is none yet.
  std::shared_ptr<EarlyMessage> FrontEarly(const MessageKey& key) const;
  /// Removes and returns the message for a Recv with `key`; null: there is none yet.
  std::shared_ptr<EarlyMessage> TakeEarly(const MessageKey& key);
  void Post(std::shared_ptr<Operation> operation);

  void Forget(const Operation& operation);
  void TakePosted(Operations& into);
  void DropEarly() { early_.clear(); }

  bool has_posted() const { return !posted_.empty(); }
  bool HasPosted(const KeyPredicate& fits) const;
  /// The first message without a Recv of each key that fits.
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
