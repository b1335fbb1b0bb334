#include "elastic/store/etcd/etcd_leadership.h"

#include <algorithm>
#include <utility>

#include "elastic/protocol/service_limits.h"
#include "elastic/store/etcd/etcd_keys.h"

namespace heddle::elastic {
namespace {

// Of a lease: how often it is renewed, and how long before its end it no longer counts.
constexpr int kRenewals = 6;

}  // namespace

EtcdLeadership::EtcdLeadership(Options options)
    : options_(std::move(options)),
      margin_(options_.lease.length / kRenewals),
      held_until_(options_.granted + options_.lease.length - margin_) {
  thread_ = Thread("etcd", [this] { Run(); });
}

EtcdLeadership::~EtcdLeadership() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.Join();
  if (Held().ok()) {
    options_.client->Revoke(options_.lease.id, After(kEtcdGiveBackWithin))
        .IgnoreError("then it ends by itself");
  }
}

Status EtcdLeadership::HeldUnder() const {
  if (!lost_.empty()) {
    return AbortedError("{}", lost_);
  }
  if (Now() < held_until_) {
    return Status::Ok();
  }
  return AbortedError("the leader's lease has ended without a renewal{}{}",
                      trouble_.empty() ? "" : ": ", trouble_);
}

Status EtcdLeadership::Held() const {
  const MutexLock lock(mutex_);
  return HeldUnder();
}

void EtcdLeadership::Lose(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (lost_.empty()) {
    lost_ = reason;
  }
}

void EtcdLeadership::Run() {
  while (true) {
    const Time next = Now() + options_.lease.length / kRenewals;
    if (!Renew()) {
      return;
    }
    const MutexLock lock(mutex_);
    while (!stopping_ && Now() < next) {
      wake_.WaitUntil(mutex_, next);
    }
    if (stopping_) {
      return;
    }
  }
}

bool EtcdLeadership::Renew() {
  const Time asked = Now();
  Time until;
  {
    const MutexLock lock(mutex_);
    until = std::min(held_until_, asked + kEtcdCallWithin);
  }
  const Result<Duration> left = options_.client->KeepAlive(options_.lease.id, until);
  Status status = left.status();
  if (left.ok()) {
    etcdserverpb::TxnRequest look;
    ExpectCreated(look, options_.leader_key, options_.revision);
    const auto seen = options_.client->Txn(look, until);
    status = seen.status();
    if (seen.ok() && !seen->succeeded()) {
      status = NotFoundError("etcd: the key {} is gone or another's", options_.leader_key);
    }
  }
  const MutexLock lock(mutex_);
  if (const Status held = HeldUnder(); !held.ok()) {
    lost_ = held.message();  // Somebody may have seen it: no renewal undoes it.
    return false;
  }
  if (status.code() == StatusCode::kNotFound) {
    lost_ = status.message();
    return false;
  }
  trouble_ = status.message();
  if (status.ok()) {
    held_until_ = asked + std::min(*left, options_.lease.length) - margin_;
  }
  return true;
}

}  // namespace heddle::elastic
