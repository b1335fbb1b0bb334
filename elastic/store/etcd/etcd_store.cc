#include "elastic/store/etcd/etcd_store.h"

#include <optional>
#include <string_view>
#include <utility>

#include "elastic/protocol/service_limits.h"
#include "elastic/store/encoded_state.h"
#include "elastic/store/etcd/etcd_client.h"
#include "elastic/store/etcd/etcd_keys.h"

namespace heddle::elastic {
namespace {

namespace pb = etcdserverpb;

// etcd takes requests of 1.5 MiB by default; keys and comparisons need little of it.
constexpr size_t kPartBytes = 1 << 20;
constexpr size_t kMaxBytes = 64 << 20;
// A write whose answer was lost is seen once; nobody else writes.
constexpr int kTries = 3;

class EtcdStore : public StateStore {
 public:
  EtcdStore(std::string prefix, StoreTerm term, std::unique_ptr<EtcdLeadership> leadership)
      : prefix_(std::move(prefix)),
        state_key_(StateKey(prefix_)),
        term_(std::move(term)),
        leadership_(std::move(leadership)) {}

  Result<std::optional<DurableState>> Load() override {
    HEDDLE_ASSIGN_OR_RETURN(const pb::TxnResponse response, ReadAsLeader(state_key_));
    const mvccpb::KeyValue* const found = Found(response, 0);
    if (found == nullptr) {
      return std::optional<DurableState>();
    }
    std::string_view rest;
    HEDDLE_ASSIGN_OR_RETURN(const StateHead head, DecodeHead(found->value(), Where(), &rest));
    std::string text(rest);
    for (int64_t part = 0; part < head.parts; ++part) {
      HEDDLE_ASSIGN_OR_RETURN(const pb::TxnResponse read, ReadAsLeader(PartKey(head.name, part)));
      const mvccpb::KeyValue* const piece = Found(read, 0);
      if (piece == nullptr || text.size() + piece->value().size() > kMaxBytes) {
        return DataLossError("{}: part {} of {} is missing or too long", Where(), part, head.parts);
      }
      text += piece->value();
    }
    if (text.size() != static_cast<size_t>(head.bytes)) {
      return DataLossError("{}: {} bytes, expected {}", Where(), text.size(), head.bytes);
    }
    HEDDLE_ASSIGN_OR_RETURN(DurableState state, DecodeState(text, Where()));
    state.generation_counter = head.generation;
    Seen(found->mod_revision(), head.generation);
    return std::optional<DurableState>(std::move(state));
  }

  Status Save(const DurableState& state) override {
    HEDDLE_RETURN_IF_ERROR(Owned());
    const std::string text = EncodeState(state);
    if (text.size() > kMaxBytes) {
      return ResourceExhaustedError("{}: {} bytes of state are more than the {} that are kept",
                                    Where(), text.size(), kMaxBytes);
    }
    StateHead head{.generation = state.generation_counter,
                   .bytes = static_cast<int64_t>(text.size()),
                   .parts = 0,
                   .name = ""};
    if (text.size() > kPartBytes) {
      head.name = fmt::format("{}-{}", term_.number, ++saves_);
      for (size_t at = 0; at < text.size(); at += kPartBytes) {
        HEDDLE_RETURN_IF_ERROR(
            WritePart(PartKey(head.name, head.parts++), text.substr(at, kPartBytes)));
      }
    }
    return Commit(head, EncodeHead(head) + (head.parts == 0 ? text : ""));
  }

  Status Owned() const override { return leadership_->Held().WithContext("{}", Where()); }
  StoreTerm term() const override { return term_; }

 private:
  std::string Where() const { return "etcd " + prefix_; }
  std::string PartKey(const std::string& name, int64_t part) const {
    return fmt::format("{}{}/{}", PartsKey(prefix_), name, part);
  }

  // A transaction that does something only while we lead.
  pb::TxnRequest AsLeader() const {
    pb::TxnRequest txn;
    ExpectCreated(txn, leadership_->leader_key(), leadership_->revision());
    return txn;
  }

  Status NotLeader() {
    leadership_->Lose("another coordinator leads, or has led");
    return Owned();
  }

  Result<pb::TxnResponse> ReadAsLeader(const std::string& key) {
    pb::TxnRequest txn = AsLeader();
    Read(txn, key);
    HEDDLE_ASSIGN_OR_RETURN(pb::TxnResponse response,
                            leadership_->client().Txn(txn, After(kEtcdCallWithin)));
    if (!response.succeeded()) {
      return NotLeader();
    }
    return response;
  }

  Status WritePart(const std::string& key, const std::string& value) {
    pb::TxnRequest txn = AsLeader();
    Put(txn, key, value);
    HEDDLE_ASSIGN_OR_RETURN(const pb::TxnResponse response,
                            leadership_->client().Txn(txn, After(kEtcdCallWithin)));
    return response.succeeded() ? Status::Ok() : NotLeader();
  }

  // Makes `value` the state, and removes the parts of every other one.
  Status Commit(const StateHead& head, const std::string& value) {
    const std::string parts = PartsKey(prefix_);
    std::string behind = parts;
    ++behind.back();
    for (int i = 0; i < kTries; ++i) {
      if (head.generation < generation_) {
        return AbortedError(
            "{}: generation {} is below the one stored: another coordinator has "
            "written",
            Where(), head.generation);
      }
      pb::TxnRequest txn = AsLeader();
      ExpectModified(txn, state_key_, revision_);
      Put(txn, state_key_, value);
      if (head.parts == 0) {
        Erase(txn, parts, behind);
      } else {
        Erase(txn, parts, parts + head.name + "/");
        Erase(txn, parts + head.name + "0", behind);  // '0' follows '/'.
      }
      ReadOtherwise(txn, leadership_->leader_key());
      ReadOtherwise(txn, state_key_);
      HEDDLE_ASSIGN_OR_RETURN(const pb::TxnResponse response,
                              leadership_->client().Txn(txn, After(kEtcdCallWithin)));
      if (response.succeeded()) {
        Seen(response.header().revision(), head.generation);
        return Status::Ok();
      }
      HEDDLE_RETURN_IF_ERROR(SeeOwnWrite(response));
    }
    return UnavailableError("{}: the state changes while it is written", Where());
  }

  // Why a commit was refused: another leads; or an earlier write of ours has arrived, of which
  // nobody told.
  Status SeeOwnWrite(const pb::TxnResponse& refused) {
    const mvccpb::KeyValue* const leader = Found(refused, 0);
    if (leader == nullptr || leader->create_revision() != leadership_->revision()) {
      return NotLeader();
    }
    const mvccpb::KeyValue* const state = Found(refused, 1);
    if (state == nullptr) {
      Seen(0, 0);
      return Status::Ok();
    }
    std::string_view rest;
    HEDDLE_ASSIGN_OR_RETURN(const StateHead head, DecodeHead(state->value(), Where(), &rest));
    Seen(state->mod_revision(), head.generation);
    return Status::Ok();
  }

  void Seen(int64_t revision, int64_t generation) {
    revision_ = revision;
    generation_ = generation;
  }

  const std::string prefix_;
  const std::string state_key_;
  const StoreTerm term_;
  int64_t revision_ = 0;    // Of the state that was seen last; 0: there was none.
  int64_t generation_ = 0;  // Its generation_counter.
  int64_t saves_ = 0;
  const std::unique_ptr<EtcdLeadership> leadership_;
};

}  // namespace

std::unique_ptr<StateStore> MakeEtcdStore(const std::string& prefix,
                                          StoreTerm term,
                                          std::unique_ptr<EtcdLeadership> leadership) {
  return std::make_unique<EtcdStore>(prefix, std::move(term), std::move(leadership));
}

}  // namespace heddle::elastic
