/// \file
/// The processes of all workers that ever were, and who of them can do something.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/elastic/simulation/world/worker.h"
#include "tests/elastic/simulation/world/world.h"

namespace heddle::elastic {

/// Thread: one caller.
class Fleet {
 public:
  using Call = std::function<void(SimWorker&)>;

  explicit Fleet(World& world) : world_(world) {}

  /// A process that has done nothing yet. `name`: that it asks for; empty: none.
  SimWorker& Add(const std::string& name);
  /// Null: there is none.
  SimWorker* Find(const std::string& key);
  SimWorker& at(const std::string& key) { return *workers_.at(key); }
  /// The one that runs under a name, as the newest coordinator knows it, or that of an era. Another
  /// may ask for the same name, or not know yet that it lost it: the one that was welcomed last has
  /// it.
  SimWorker* Named(const std::string& name) { return Named(name, era_); }
  SimWorker* Named(const std::string& name, int64_t era);
  /// Counts the stores that were lost: a coordinator with an empty one gives names and numbers
  /// anew.
  int64_t era() const { return era_; }
  void BeginEra() { ++era_; }
  std::string NameOf(const std::string& key);
  /// Of all that run, by key.
  std::vector<SimWorker*> Running();
  /// Null: nobody runs.
  SimWorker* RandomRunning(Random& random);
  const std::map<std::string, std::unique_ptr<SimWorker>>& workers() const { return workers_; }

  /// What a worker does at a time, unless its process has ended by then; once it is continued where
  /// that is stopped.
  void At(const std::string& key, Time when, Call call);
  void After(const std::string& key, double low_ms, double high_ms, Call call);
  void Stop(const std::string& key, Duration time);
  /// As the worker's clock shows it.
  Time TimeOf(const SimWorker& worker) const { return worker.clock.At(world_.now()); }

  /// It is cut off from everybody.
  bool Unreachable(const SimWorker& worker) const {
    return worker.cut_until.has_value() && world_.now() < *worker.cut_until;
  }

 private:
  World& world_;
  std::map<std::string, std::unique_ptr<SimWorker>> workers_;  ///< By key.
  int next_key_ = 0;
  int64_t era_ = 0;
};

}  // namespace heddle::elastic
