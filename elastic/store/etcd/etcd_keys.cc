#include "elastic/store/etcd/etcd_keys.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "elastic/store/encoded_state.h"

namespace heddle::elastic {

namespace pb = etcdserverpb;
using Json = nlohmann::json;

std::string EncodeLeader(const LeaderRecord& leader) {
  return Json{{"address", leader.address}, {"id", leader.id}}.dump();
}

LeaderRecord DecodeLeader(const std::string& value) {
  const Json json = Json::parse(value, nullptr, false);
  const auto text = [&](const char* name) {
    const bool there = json.is_object() && json.contains(name) && json[name].is_string();
    return there ? json[name].get<std::string>() : std::string();
  };
  return {.address = text("address"), .id = text("id")};
}

std::string EncodeHead(const StateHead& head) {
  return Json{{"heddle", kStateVersion},
              {"generation", head.generation},
              {"bytes", head.bytes},
              {"parts", head.parts},
              {"name", head.name}}
             .dump() +
         "\n";
}

Result<StateHead> DecodeHead(const std::string& value,
                             const std::string& where,
                             std::string_view* rest) {
  const size_t end = std::min(value.find('\n'), value.size());
  const Json json =
      Json::parse(value.begin(), value.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
  if (!json.is_object() || !json.contains("heddle")) {
    return DataLossError("{}: not a coordinator's state", where);
  }
  if (json["heddle"] != kStateVersion) {
    return DataLossError("{}: version {} of the coordinator's state, this build reads version {}",
                         where, json["heddle"].dump(), kStateVersion);
  }
  StateHead head;
  try {
    head.generation = json.at("generation");
    head.bytes = json.at("bytes");
    head.parts = json.at("parts");
    head.name = json.at("name");
  } catch (const std::exception& error) {
    return DataLossError("{}: not a coordinator's state: {}", where, error.what());
  }
  *rest = std::string_view(value).substr(std::min(end + 1, value.size()));
  return head;
}

void ExpectCreated(pb::TxnRequest& txn, const std::string& key, int64_t revision) {
  pb::Compare& compare = *txn.add_compare();
  compare.set_target(pb::Compare::CREATE);
  compare.set_key(key);
  compare.set_create_revision(revision);
}

void ExpectModified(pb::TxnRequest& txn, const std::string& key, int64_t revision) {
  pb::Compare& compare = *txn.add_compare();
  compare.set_target(pb::Compare::MOD);
  compare.set_key(key);
  compare.set_mod_revision(revision);
}

void Put(pb::TxnRequest& txn, const std::string& key, const std::string& value, int64_t lease) {
  pb::PutRequest& put = *txn.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  put.set_lease(lease);
}

void Erase(pb::TxnRequest& txn, const std::string& begin, const std::string& end) {
  pb::DeleteRangeRequest& erase = *txn.add_success()->mutable_request_delete_range();
  erase.set_key(begin);
  erase.set_range_end(end);
}

void Read(pb::TxnRequest& txn, const std::string& key) {
  txn.add_success()->mutable_request_range()->set_key(key);
}

void ReadOtherwise(pb::TxnRequest& txn, const std::string& key) {
  txn.add_failure()->mutable_request_range()->set_key(key);
}

const mvccpb::KeyValue* Found(const pb::TxnResponse& response, int operation) {
  if (operation >= response.responses_size()) {
    return nullptr;
  }
  const pb::RangeResponse& range = response.responses(operation).response_range();
  return range.kvs_size() == 0 ? nullptr : &range.kvs(0);
}

}  // namespace heddle::elastic
