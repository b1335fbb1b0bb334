/// \file
/// When this machine stood still: a hypervisor gives a virtual machine's processors to others for a
/// while, and nothing that runs there can tell but by its clock. A bound on time counts what is
/// left.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace heddle::testing {

/// Watches while it exists: on each processor a thread of the highest urgency, which no load of
/// ours delays, sleeps for a moment again and again. What it oversleeps is a pause. Without the
/// right to such urgency there are no pauses: a bound is then as it stands. Thread-safe.
/// tests/support/pauses.py is the same for tests in Python.
class Pauses {
 public:
  Pauses();
  ~Pauses();
  Pauses(const Pauses&) = delete;
  Pauses& operator=(const Pauses&) = delete;

  /// How long the processor that did so longest stood still in this interval.
  [[nodiscard]] Duration Within(Time begin, Time end) const;

 private:
  using Intervals = std::vector<std::pair<Time, Time>>;
  void Watch(int processor);

  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::map<int, Intervals> pauses_;  // By processor. Guarded by mutex_.
  std::vector<std::thread> threads_;
};

}  // namespace heddle::testing
