/// \file
/// What a leader does to stay one, and how it knows that it may have ceased to be.
/// Included by etcd_store.cc and etcd_election.cc only.
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

/// Renews the lease of the key `leader`, and looks each time whether the key is still there: a
/// lease's renewal alone proves nothing (etcd 3.4 has confirmed those of leases that were gone).
/// Thread: any.
class EtcdLeadership {
 public:
  struct Options {
    std::shared_ptr<EtcdClient> client;
    std::string leader_key;
    int64_t revision = 0;  ///< In which the key came to be.
    EtcdClient::Lease lease;
    Time granted = {};  ///< Before the lease was asked for.
  };
  explicit EtcdLeadership(Options options);
  /// Gives the lease back when it is still ours.
  ~EtcdLeadership();
  EtcdLeadership(const EtcdLeadership&) = delete;
  EtcdLeadership& operator=(const EtcdLeadership&) = delete;

  /// OK while no other coordinator can lead. Errors: kAborted, for good.
  Status Held() const HEDDLE_EXCLUDES(mutex_);
  /// It was seen that another one leads.
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
  const Duration margin_;  ///< Before the lease's end: what was begun ends within it.

  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  Time held_until_ HEDDLE_GUARDED_BY(mutex_);
  std::string lost_ HEDDLE_GUARDED_BY(mutex_);     ///< Why; empty: it is not.
  std::string trouble_ HEDDLE_GUARDED_BY(mutex_);  ///< Of the last renewal that failed.
  Thread thread_;                                  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
