/// \file
/// Calls of an etcd cluster, to whichever of its members answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/store/etcd/etcd_address.h"
#include "elastic/store/etcd/rpc.pb.h"

namespace heddle::elastic {

/// A member is given a second to answer; then the next one is asked, and the one that answers is
/// asked first from then on. A call ends when each has been asked once, or at its deadline.
///
/// Errors: kUnavailable (no member answered, or a majority of them is missing: the request may have
/// been carried out all the same), kNotFound (a lease that has ended), kResourceExhausted (etcd's
/// own space), kInvalidArgument (a request that is too large, for one), kUnauthenticated,
/// kPermissionDenied. Thread: any.
class EtcdClient {
 public:
  /// Reads the files of TLS. Errors: those of reading.
  static Result<std::unique_ptr<EtcdClient>> Open(const EtcdAddress& address);
  ~EtcdClient();

  Result<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request, Deadline deadline);
  struct Lease {
    int64_t id = 0;
    Duration length = {};  ///< At least what was asked for.
  };
  Result<Lease> Grant(Duration length, Deadline deadline);
  /// What is left of the lease, which is all of it again.
  Result<Duration> KeepAlive(int64_t lease, Deadline deadline);
  Status Revoke(int64_t lease, Deadline deadline);

 private:
  class Impl;
  explicit EtcdClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
