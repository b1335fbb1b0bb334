/// \file
/// A client of an etcd cluster that calls any member that answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/store/etcd/etcd_address.h"
#include "elastic/store/etcd/rpc.pb.h"

namespace heddle::elastic {

/// Each call asks a member, and the next one if it has not answered within kEtcdAnswerWithin; the
/// member that answered is asked first from then on. A call ends when each member has been asked
/// once, or at its deadline.
///
/// Errors of every call: kUnavailable (no member answered, or the cluster has no quorum; the
/// request may have been carried out all the same), kNotFound (the lease has ended),
/// kResourceExhausted (etcd has no space left), kInvalidArgument (for example, the request is too
/// large), kUnauthenticated, kPermissionDenied. Thread: any.
class EtcdClient {
 public:
  /// Reads the TLS files, and connects to no member yet. Errors: those of reading the files.
  static Result<std::unique_ptr<EtcdClient>> Open(const EtcdAddress& address);
  ~EtcdClient();

  /// Carries out a transaction.
  Result<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request, Deadline deadline);
  struct Lease {
    int64_t id = 0;
    Duration length = {};  ///< At least the length that was asked for.
  };
  /// Creates a lease.
  Result<Lease> Grant(Duration length, Deadline deadline);
  /// Renews a lease to its full length, and returns what etcd says is left of it.
  Result<Duration> KeepAlive(int64_t lease, Deadline deadline);
  /// Ends a lease, and removes its keys.
  Status Revoke(int64_t lease, Deadline deadline);

 private:
  class Impl;
  explicit EtcdClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
