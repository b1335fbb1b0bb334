#include "elastic/store/etcd/etcd_election.h"

#include <random>
#include <utility>

#include <fmt/format.h>

#include "elastic/protocol/service_limits.h"
#include "elastic/store/etcd/etcd_client.h"
#include "elastic/store/etcd/etcd_keys.h"
#include "elastic/store/etcd/etcd_leadership.h"
#include "elastic/store/etcd/etcd_store.h"

namespace heddle::elastic {
namespace {

std::string RandomId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    id += fmt::format("{:08x}", static_cast<uint32_t>(device()));
  }
  return id;
}

}  // namespace

EtcdElection::EtcdElection(EtcdAddress address, std::shared_ptr<EtcdClient> client)
    : address_(std::move(address)),
      client_(std::move(client)) {}
EtcdElection::~EtcdElection() = default;

Result<std::unique_ptr<EtcdElection>> EtcdElection::Open(const EtcdAddress& address) {
  HEDDLE_ASSIGN_OR_RETURN(std::shared_ptr<EtcdClient> client, EtcdClient::Open(address));
  return std::unique_ptr<EtcdElection>(new EtcdElection(address, std::move(client)));
}

Result<EtcdElection::Turn> EtcdElection::Try(const std::string& own_address) {
  const std::string key = LeaderKey(address_.prefix);
  etcdserverpb::TxnRequest look;
  Read(look, key);
  HEDDLE_ASSIGN_OR_RETURN(const auto seen, client_->Txn(look, After(kEtcdCallWithin)));
  if (const mvccpb::KeyValue* const leader = Found(seen, 0)) {
    return Turn{.store = nullptr, .leader = DecodeLeader(leader->value()).address};
  }
  const Time granted = Now();
  HEDDLE_ASSIGN_OR_RETURN(const EtcdClient::Lease lease,
                          client_->Grant(address_.lease, After(kEtcdCallWithin)));
  const std::string value = EncodeLeader({.address = own_address, .id = RandomId()});
  etcdserverpb::TxnRequest take;
  ExpectCreated(take, key, 0);
  Put(take, key, value, lease.id);
  ReadOtherwise(take, key);
  const auto taken = client_->Txn(take, After(kEtcdCallWithin));
  const mvccpb::KeyValue* const other =
      taken.ok() && !taken->succeeded() ? Found(*taken, 0) : nullptr;
  // A request whose answer was lost is asked again, and then finds what it has done.
  const bool ours =
      taken.ok() && (taken->succeeded() || (other != nullptr && other->value() == value));
  if (!ours) {
    client_->Revoke(lease.id, After(kEtcdCallWithin)).IgnoreError("then it ends by itself");
    HEDDLE_RETURN_IF_ERROR(taken.status());
    return Turn{.store = nullptr,
                .leader = other == nullptr ? "" : DecodeLeader(other->value()).address};
  }
  const int64_t revision =
      taken->succeeded() ? taken->header().revision() : other->create_revision();
  return Turn{
      .store = MakeEtcdStore(
          address_.prefix,
          {.store = fmt::format("etcd {:x}{}", taken->header().cluster_id(), address_.prefix),
           .number = revision},
          std::make_unique<EtcdLeadership>(EtcdLeadership::Options{.client = client_,
                                                                   .leader_key = key,
                                                                   .revision = revision,
                                                                   .lease = lease,
                                                                   .granted = granted})),
      .leader = own_address};
}

}  // namespace heddle::elastic
