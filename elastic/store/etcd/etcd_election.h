/// \file
/// The coordinator's state in etcd, for several coordinators of which one leads at a time.
///
/// Keys below the prefix: `leader`, bound to the leader's lease; `state`, the state itself, or into
/// how many parts it is split; `parts/…`, the parts of a state that is too large for one request.
///
/// No lease is trusted: every write, and every read that counts, is a transaction on the condition
/// that `leader` is still the key that this leader created, by its create revision. A write of
/// `state` also has the condition that `state` is unchanged since this leader last saw it. A leader
/// that was stopped, cut off or deceived about its lease can write nothing once another one leads.
/// (etcd's own locks do not ensure that: https://jepsen.io/analyses/etcd-3.4.3.)
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/store/etcd/etcd_address.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

class EtcdClient;

/// The election among the coordinators of one prefix, each of which calls Try until it leads.
/// Thread: one caller at a time.
class EtcdElection {
 public:
  /// Reads the TLS files, and connects to no member yet. Errors: those of reading the files.
  static Result<std::unique_ptr<EtcdElection>> Open(const EtcdAddress& address);
  ~EtcdElection();

  struct Turn {
    std::unique_ptr<StateStore> store;  ///< Null: another coordinator leads.
    std::string leader;                 ///< The address of the leader; empty: it gave none.
  };
  /// Attempts to lead, once; returns within seconds. Others are told `own_address` as that of the
  /// leader. The store may outlive the election. Destroying a store that is still owned lets
  /// another coordinator lead at once. Errors: those of EtcdClient.
  Result<Turn> Try(const std::string& own_address);

 private:
  EtcdElection(EtcdAddress address, std::shared_ptr<EtcdClient> client);

  const EtcdAddress address_;
  const std::shared_ptr<EtcdClient> client_;
};

}  // namespace heddle::elastic
