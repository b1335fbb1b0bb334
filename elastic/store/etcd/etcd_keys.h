/// \file
/// The keys and values of a coordinator's state in etcd, and helpers for transactions. Included by
/// etcd_*.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "elastic/store/etcd/rpc.pb.h"

namespace heddle::elastic {

inline std::string LeaderKey(const std::string& prefix) {
  return prefix + "/leader";
}
inline std::string StateKey(const std::string& prefix) {
  return prefix + "/state";
}
inline std::string PartsKey(const std::string& prefix) {
  return prefix + "/parts/";
}

/// The value of `leader`.
struct LeaderRecord {
  std::string address;  ///< HOST:PORT at which others reach the leader; empty: not known.
  std::string id;       ///< Random, drawn for each attempt to lead.
};
std::string EncodeLeader(const LeaderRecord& leader);
/// Decodes the value of `leader`. Fields that cannot be read are empty.
LeaderRecord DecodeLeader(const std::string& value);

/// The head of the value of `state`.
struct StateHead {
  int64_t generation = 0;  ///< DurableState::generation_counter.
  int64_t bytes = 0;       ///< Size of the encoded state in bytes.
  int64_t parts = 0;       ///< Number of parts; 0: the encoded state follows the head.
  std::string name;        ///< The keys of the parts are parts/NAME/0, parts/NAME/1, …
};
std::string EncodeHead(const StateHead& head);
/// Decodes the head of `value` and sets `rest` to what follows. `where` names the key in error
/// messages. Errors: kDataLoss.
Result<StateHead> DecodeHead(const std::string& value,
                             const std::string& where,
                             std::string_view* rest);

/// Adds the condition that the key has this create revision; 0: the key does not exist.
void ExpectCreated(etcdserverpb::TxnRequest& txn, const std::string& key, int64_t revision);
/// Adds the condition that the key has this revision of its last write; 0: the key does not exist.
void ExpectModified(etcdserverpb::TxnRequest& txn, const std::string& key, int64_t revision);
/// Adds a write, if the conditions hold.
void Put(etcdserverpb::TxnRequest& txn,
         const std::string& key,
         const std::string& value,
         int64_t lease = 0);
/// Adds the removal of the keys from `begin` on and below `end`, if the conditions hold.
void Erase(etcdserverpb::TxnRequest& txn, const std::string& begin, const std::string& end);
/// Adds a read, if the conditions hold.
void Read(etcdserverpb::TxnRequest& txn, const std::string& key);
/// Adds a read, if a condition does not hold.
void ReadOtherwise(etcdserverpb::TxnRequest& txn, const std::string& key);
/// The key and value that the operation of this number read; null if the key does not exist.
const mvccpb::KeyValue* Found(const etcdserverpb::TxnResponse& response, int operation);

}  // namespace heddle::elastic
