/// \file
/// The keys of a coordinator's state in etcd, what stands under them, and parts of transactions.
/// Included by etcd_store.cc and etcd_election.cc only.
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

/// What stands under `leader`.
struct LeaderRecord {
  std::string address;  ///< HOST:PORT that others reach it at; empty: it cannot say.
  std::string id;       ///< Random, of this attempt alone.
};
std::string EncodeLeader(const LeaderRecord& leader);
/// A record that cannot be read is one without an address.
LeaderRecord DecodeLeader(const std::string& value);

/// What stands first under `state`.
struct StateHead {
  int64_t generation = 0;
  int64_t bytes = 0;  ///< Of the facts.
  int64_t parts = 0;  ///< 0: the facts follow.
  std::string name;   ///< Of the parts: they stand under parts/NAME/0 and on.
};
std::string EncodeHead(const StateHead& head);
/// Errors: kDataLoss; `where` names the key. `rest` is what follows.
Result<StateHead> DecodeHead(const std::string& value,
                             const std::string& where,
                             std::string_view* rest);

/// Comparisons and operations, added to a transaction.
void ExpectCreated(etcdserverpb::TxnRequest& txn, const std::string& key, int64_t revision);
void ExpectModified(etcdserverpb::TxnRequest& txn, const std::string& key, int64_t revision);
void Put(etcdserverpb::TxnRequest& txn,
         const std::string& key,
         const std::string& value,
         int64_t lease = 0);
/// Those from `begin` on, below `end`.
void Erase(etcdserverpb::TxnRequest& txn, const std::string& begin, const std::string& end);
void Read(etcdserverpb::TxnRequest& txn, const std::string& key);
void ReadOtherwise(etcdserverpb::TxnRequest& txn, const std::string& key);
/// The key that the operation of this number read; null: it is not there.
const mvccpb::KeyValue* Found(const etcdserverpb::TxnResponse& response, int operation);

}  // namespace heddle::elastic
