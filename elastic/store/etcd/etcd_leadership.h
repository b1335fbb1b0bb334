/// \file
/// Keeps the leadership of a coordinator, and knows when it may have ended. Included by
/// etcd_store.h and etcd_*.cc only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "elastic/store/etcd/etcd_client.h"

namespace heddle::elastic {

/// Renews the lease of the key `leader` in a thread, and checks each time that the key is still
/// there: a renewal alone proves nothing (etcd 3.4 has confirmed renewals of leases that had
/// ended). Thread: any.
class EtcdLeadership {
 public:
  struct Options {
    std::shared_ptr<EtcdClient> client;
    std::string leader_key;
    int64_t revision = 0;  ///< The key's create revision.
    EtcdClient::Lease lease;
    Time granted = {};  ///< A time before the lease was requested.
  };
  explicit EtcdLeadership(Options options);
  /// Revokes the lease if the leadership is still held.
  ~EtcdLeadership();
  EtcdLeadership(const EtcdLeadership&) = delete;
  EtcdLeadership& operator=(const EtcdLeadership&) = delete;

  /// Ok while no other coordinator can lead. Errors: kAborted, for good.
  Status Held() const HEDDLE_EXCLUDES(mutex_);
  /// Ends the leadership, because another coordinator was seen to lead. `reason`: the message of
  /// later errors.
  void Lose(const std::string& reason) HEDDLE_EXCLUDES(mutex_);

  const std::string& leader_key() const { return options_.leader_key; }
  int64_t revision() const { return options_.revision; }
  EtcdClient& client() const { return *options_.client; }

 private:
  void Run();
  /// One renewal; false: the leadership is lost.
  bool Renew();
  Status HeldUnder() const HEDDLE_REQUIRES(mutex_);

  const Options options_;
  const Duration margin_;  ///< Held() ends this long before the lease, so that begun work can end.

  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  Time held_until_ HEDDLE_GUARDED_BY(mutex_);
  std::string lost_ HEDDLE_GUARDED_BY(mutex_);     ///< Why it is lost; empty: it is not.
  std::string trouble_ HEDDLE_GUARDED_BY(mutex_);  ///< Why the last renewal failed; empty: none.
  Thread thread_;                                  // Last, because it uses the fields above.
};

}  // namespace heddle::elastic
