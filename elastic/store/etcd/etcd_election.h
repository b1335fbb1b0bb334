/// \file
/// The coordinator's state in etcd, for several coordinators of which one leads at a time.
///
/// Keys below the prefix: `leader`, bound to the leader's lease; `state`, the facts, or how many
/// parts they are in; `parts/…`, where they are more than one request of etcd may hold.
///
/// No lease is trusted: every write and every read that counts is a transaction which asks that
/// `leader` is still the key that this leader created, by the revision in which it came to be, and
/// a write of `state` also that it is the one that was seen last. A leader that was stopped, cut
/// off or deceived about its lease can write nothing once there is another. (etcd's own locks do
/// not give that: https://jepsen.io/analyses/etcd-3.4.3.)
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/store/etcd/etcd_address.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

class EtcdClient;

/// Several coordinators of one prefix each call Try until they lead. Thread: one caller at a time.
class EtcdElection {
 public:
  /// Reads the files of TLS; talks to nobody yet. Errors: those of reading.
  static Result<std::unique_ptr<EtcdElection>> Open(const EtcdAddress& address);
  ~EtcdElection();

  struct Turn {
    std::unique_ptr<StateStore> store;  ///< Null: another coordinator leads.
    std::string leader;                 ///< The address that it gave; empty: it gave none.
  };
  /// One attempt to lead, within seconds. `own_address` is what others are told then. The store
  /// outlives the election if need be; its end, when it still owns it, lets another lead at once.
  /// Errors: kUnavailable, and the other ones of EtcdClient.
  Result<Turn> Try(const std::string& own_address);

 private:
  EtcdElection(EtcdAddress address, std::shared_ptr<EtcdClient> client);

  const EtcdAddress address_;
  const std::shared_ptr<EtcdClient> client_;
};

}  // namespace heddle::elastic
