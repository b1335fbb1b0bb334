#include "tests/elastic/simulation/world/fleet.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {

SimWorker& Fleet::Add(const std::string& name) {
  const SimOptions& options = world_.options();
  const std::string key = fmt::format("p{:02}", next_key_++);
  auto worker = std::make_unique<SimWorker>(key, SimClock(options.seed, key, world_.now()));
  worker->era = era_;
  worker->usual_slowdown = next_key_ % 2 == 0 ? 1 + options.unlike_percent / 100.0 : 1;
  worker->slowdown = worker->usual_slowdown;
  worker->incarnation = fmt::format("{:0>16}", key);
  MemberIdentity identity;
  identity.name = name;
  identity.incarnation = worker->incarnation;
  identity.host = fmt::format("host-{}", next_key_ % options.hosts);
  if (options.domains > 1) {
    identity.failure_domain = fmt::format("rack-{}", next_key_ % options.hosts % options.domains);
  }
  identity.pid = 100 + next_key_;
  identity.data_address = key;
  identity.network = identity.host;
  identity.probe_address = key;
  const bool begins = next_key_ <= options.workers;
  worker->kind = begins && !options.unlike_begin ? 0 : next_key_ % options.arithmetics;
  identity.device_of_job = options.arithmetics > 1 && next_key_ % 3 == 0;
  identity.arithmetic = {
      {"kind", identity.device_of_job ? "processor" : std::to_string(worker->kind)}};
  worker->device_of_job = identity.device_of_job;
  worker->host = identity.host;
  worker->pid = identity.pid;
  MemberOptions member_options;
  if (!options.priced()) {  // Steps are shorter than real ones.
    member_options.window_steps = 3;
    member_options.window_time = std::chrono::milliseconds(100);
    member_options.quick_window_time = std::chrono::milliseconds(100);
  }
  worker->member = std::make_unique<Member>(identity, member_options, TimeOf(*worker));
  return *(workers_[key] = std::move(worker));
}

SimWorker* Fleet::Find(const std::string& key) {
  const auto found = workers_.find(key);
  return found == workers_.end() ? nullptr : found->second.get();
}

SimWorker* Fleet::Named(const std::string& name, int64_t era) {
  SimWorker* newest = nullptr;
  for (auto& [key, worker] : workers_) {
    if (worker->runs() && worker->era == era && worker->member->name() == name &&
        (newest == nullptr || worker->welcome > newest->welcome)) {
      newest = worker.get();
    }
  }
  return newest;
}

std::string Fleet::NameOf(const std::string& key) {
  SimWorker* worker = Find(key);
  return worker == nullptr ? "" : worker->member->name();
}

std::vector<SimWorker*> Fleet::Running() {
  std::vector<SimWorker*> running;
  for (const auto& [key, worker] : workers_) {
    if (worker->runs()) {
      running.push_back(worker.get());
    }
  }
  return running;
}

SimWorker* Fleet::RandomRunning(Random& random) {
  const std::vector<SimWorker*> running = Running();
  return running.empty() ? nullptr : running[random.Below(running.size())];
}

void Fleet::At(const std::string& key, Time when, Call call) {
  SimWorker* const worker = Find(key);
  if (worker == nullptr) {
    return;
  }
  world_.At(when, [this, worker, call = std::move(call)] {
    if (!worker->runs()) {
      return;
    }
    if (worker->stopped_until) {
      worker->deferred.push_back([this, worker, call] { At(worker->key, world_.now(), call); });
      return;
    }
    call(*worker);
  });
}

void Fleet::After(const std::string& key, double low_ms, double high_ms, Call call) {
  At(key, world_.Within(low_ms, high_ms), std::move(call));
}

void Fleet::Stop(const std::string& key, Duration time) {
  SimWorker& worker = at(key);
  const Time until = std::max(world_.now() + time, worker.stopped_until.value_or(Time()));
  worker.stopped_until = until;
  world_.At(until, [this, key, until] {
    SimWorker& woken = at(key);
    if (woken.stopped_until != until) {
      return;  // It was stopped once more.
    }
    woken.stopped_until.reset();
    const std::deque<std::function<void()>> calls = std::exchange(woken.deferred, {});
    for (const auto& call : calls) {
      call();
    }
  });
}

}  // namespace heddle::elastic
