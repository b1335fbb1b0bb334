/// \file
/// The processes of all workers of a history, ended ones included, and which of them can act.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/elastic/simulation/world/worker.h"
#include "tests/elastic/simulation/world/world.h"

namespace heddle::elastic {

/// The workers' processes, each named by its key. Thread: one caller.
class Fleet {
 public:
  using Call = std::function<void(SimWorker&)>;

  explicit Fleet(World& world) : world_(world) {}

  /// Adds a process that has done nothing yet. `name`: the name that it asks for; empty: none.
  SimWorker& Add(const std::string& name);
  /// The process with this key; null: there is none.
  SimWorker* Find(const std::string& key);
  SimWorker& at(const std::string& key) { return *workers_.at(key); }
  /// The process that runs under a name in the newest era, or in `era`; null: none runs. Another
  /// process may ask for the same name, or not know yet that it lost it: the process that was
  /// welcomed last has the name.
  SimWorker* Named(const std::string& name) { return Named(name, era_); }
  SimWorker* Named(const std::string& name, int64_t era);
  /// The number of stores that were lost: a coordinator with an empty store gives out names and
  /// generations anew.
  int64_t era() const { return era_; }
  void BeginEra() { ++era_; }
  std::string NameOf(const std::string& key);
  /// All running processes, by key.
  std::vector<SimWorker*> Running();
  /// A running process, chosen by chance; null: none runs.
  SimWorker* RandomRunning(Random& random);
  const std::map<std::string, std::unique_ptr<SimWorker>>& workers() const { return workers_; }

  /// Makes `call` at the virtual time `when`, unless the worker's process has ended by then; if it
  /// is stopped then, once it is continued.
  void At(const std::string& key, Time when, Call call);
  void After(const std::string& key, double low_ms, double high_ms, Call call);
  void Stop(const std::string& key, Duration time);
  /// The time that the worker's clock shows now.
  Time TimeOf(const SimWorker& worker) const { return worker.clock.At(world_.now()); }

  /// Whether the worker is cut off from all other processes.
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
