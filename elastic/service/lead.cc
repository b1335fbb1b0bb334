#include "elastic/service/lead.h"

#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "elastic/grpc/standby_server.h"
#include "elastic/store/etcd/etcd_address.h"
#include "elastic/store/etcd/etcd_election.h"

namespace heddle::elastic {
namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(200);

// True for errors that no retry can mend.
bool IsFinal(StatusCode code) {
  return code == StatusCode::kUnauthenticated || code == StatusCode::kPermissionDenied;
}

}  // namespace

std::string AddressForOthers(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  return host == "0.0.0.0" || host == "::" || host == "[::]" ? "" : listen;
}

Result<std::unique_ptr<StateStore>> WaitToLead(const std::string& store,
                                               const Credentials& credentials,
                                               std::string& listen,
                                               Progress& progress,
                                               const std::function<bool()>& asked_to_end) {
  HEDDLE_ASSIGN_OR_RETURN(const EtcdAddress address, ParseEtcdAddress(store));
  HEDDLE_ASSIGN_OR_RETURN(const auto election, EtcdElection::Open(address));
  HEDDLE_ASSIGN_OR_RETURN(const auto standby, StandbyServer::Start(listen, credentials));
  listen = standby->address();
  std::optional<std::string> said;  // The last report; empty: that etcd does not answer.
  while (!asked_to_end()) {
    auto turn = election->Try(AddressForOthers(listen));
    if (turn.ok() && turn->store != nullptr) {
      return std::move(turn->store);
    }
    if (IsFinal(turn.status().code())) {
      return turn.status();
    }
    const std::string leader = turn.ok() ? turn->leader : "";
    const std::string waits = turn.ok() ? (leader.empty() ? "another one" : leader) + " leads"
                                        : "nobody is known to lead: " + turn.status().message();
    standby->Set(leader, waits);
    if (const std::string kind = turn.ok() ? waits : ""; said != kind) {
      progress.Say("coordinator " + listen + " stands by: " + waits);
      said = kind;
    }
    // lint: allow sleep: a poll, of what no condition of this process carries.
    std::this_thread::sleep_until(After(kTryAgain));
  }
  return std::unique_ptr<StateStore>();
}

}  // namespace heddle::elastic
