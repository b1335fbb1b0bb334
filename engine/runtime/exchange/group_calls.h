/// \file
/// Collectives that run beside compute: each begins once what is to be sent is in the host's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// The calls of one step in one lane of the communicator. Thread: one caller at a time.
class GroupCalls {
 public:
  /// `group` null: no call is begun; outlives this. `urgent`: as for Communicator::Start.
  GroupCalls(comm::Communicator* group, bool urgent) : group_(group), urgent_(urgent) {}
  GroupCalls(const GroupCalls&) = delete;
  GroupCalls& operator=(const GroupCalls&) = delete;

  /// Begins `call`, which makes one collective, as number `key` of the step once `sent` is downloaded, and
  /// waits for neither; `call` owns what it uses. If the download fails the group is aborted, because
  /// others wait for it. All members begin their calls in one order. Precondition: there is a group,
  /// and no call of this number that was not awaited.
  void Begin(size_t key, Mark sent, std::function<Status()> call);
  /// Waits until call `key` has ended; the time at which it did. Precondition: begun, and not awaited
  /// before. Errors: the communicator's, and the device's that aborted it.
  Result<Time> Await(size_t key);
  /// Waits until all calls that were not awaited have ended; the first error.
  Status Finish();
  /// After a failure: aborts the group, which is of no more use, and returns once no call uses memory
  /// of this process.
  void Abandon(const Status& reason);

 private:
  comm::Communicator* const group_;
  const bool urgent_;
  std::map<size_t, comm::Work> begun_;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace heddle::runtime
