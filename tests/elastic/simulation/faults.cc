#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

std::string Cluster::RandomAlive() {
  std::vector<std::string> keys;
  for (const auto& [key, worker] : workers_) {
    if (worker->alive && !worker->exited) {
      keys.push_back(key);
    }
  }
  return keys.empty() ? "" : keys[random_.Below(keys.size())];
}

void Cluster::Kill(const std::string& key) {
  SimWorker& worker = *Worker(key);
  worker.alive = false;
  worker.run.reset();
  worker.moving.reset();
  BreakStream(key, !Unreachable(worker));
  PeerVanished(key, Unreachable(worker));
}

void Cluster::ScheduleFaults() {
  const auto count = static_cast<int>(random_.Below(static_cast<uint64_t>(options_.faults) + 1));
  for (int i = 0; i < count; ++i) {
    After(0, 1000 * options_.fault_window_seconds, [this] {
      if (!ended_ && !healed_) {
        InjectFault();
      }
    });
  }
  if (!options_.control_faults_only) {  // What ends by itself needs no healing.
    After(1000 * options_.fault_window_seconds, 1000 * options_.fault_window_seconds + 1,
          [this] { HealAll(); });
  }
}

// The way between the coordinator and one worker, half of them or all: frozen, so that what is said
// comes late, or cut, so that it is lost. The workers still reach each other.
std::string Cluster::DisturbControl() {
  std::vector<SimWorker*> chosen;
  for (auto& [key, worker] : workers_) {
    if (worker->alive && !worker->exited) {
      chosen.push_back(worker.get());
    }
  }
  const std::array counts = {size_t{1}, (chosen.size() + 1) / 2, chosen.size()};
  const size_t count = counts[random_.Below(3)];
  while (chosen.size() > count) {
    chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(random_.Below(chosen.size())));
  }
  const double seconds = (random_.Below(2) == 0 ? 4 : 20) * random_.Uniform();
  const bool cut = random_.Below(2) == 0;
  const bool seen = random_.Below(2) == 0;
  std::string names;
  for (SimWorker* worker : chosen) {
    names += " " + worker->key;
    (cut ? worker->control_cut_until : worker->control_frozen_until) = now_ + FromSeconds(seconds);
    if (cut) {
      BreakStream(worker->key, seen);
    }
  }
  return fmt::format("{} the control path of{} for {:.2f} s", cut ? "cut" : "freeze", names,
                     seconds);
}

void Cluster::InjectFault() {
  const std::string key = RandomAlive();
  if (key.empty()) {
    return;
  }
  SimWorker& worker = *Worker(key);
  std::string what;
  if (options_.control_faults_only) {
    if (newest_go_ == 0) {
      return After(300, 600, [this] { InjectFault(); });
    }
    what = DisturbControl();
    result_.faults += (result_.faults.empty() ? "" : ", ") + what;
    Trace("FAULT " + what);
    return;
  }
  switch (random_.Below(19)) {
    case 0:
    case 1:
      what = "kill " + key;
      Kill(key);
      break;
    case 2: {
      what = "kill two, " + key;
      Kill(key);
      const std::string other = RandomAlive();
      if (!other.empty()) {
        what += " " + other;
        Kill(other);
      }
      break;
    }
    case 3: {
      what = "kill and again, " + key;
      Kill(key);
      After(20, 600, [this] {
        const std::string other = RandomAlive();
        if (!other.empty() && !ended_ && !healed_) {  // Whoever has healed ends the job.
          result_.faults += "; then " + other;
          Kill(other);
        }
      });
      break;
    }
    case 4: {
      const double seconds = 0.1 + 6 * random_.Uniform();
      what = fmt::format("stop {} for {:.2f} s", key, seconds);
      worker.stopped_until = now_ + FromSeconds(seconds);
      At(*worker.stopped_until, [this, key] {
        SimWorker& woken = *Worker(key);
        woken.stopped_until.reset();
        const std::deque<std::function<void()>> calls = std::exchange(woken.deferred, {});
        for (const auto& call : calls) {
          call();
        }
      });
      break;
    }
    case 5:
    case 6: {
      if (!coordinator_) {
        return;
      }
      const bool power = random_.Below(2) == 0;
      what = power ? "cut the coordinator's power" : "restart the coordinator";
      StopCoordinator(power);
      After(50, 3000, [this] { StartCoordinator(); });
      if (random_.Below(3) == 0) {
        what += " and kill " + key;
        Kill(key);
      }
      break;
    }
    case 7:
      what = "break the stream of " + key;
      BreakStream(key, true);
      break;
    case 8: {
      const double seconds = 0.2 + 8 * random_.Uniform();
      what = fmt::format("cut off {} for {:.2f} s", key, seconds);
      worker.cut_until = now_ + FromSeconds(seconds);
      OnWorker(key, *worker.cut_until + Duration(1),
               [this](SimWorker& w) { BreakStream(w.key, true); });
      break;
    }
    case 9: {
      const std::string other = RandomAlive();
      if (other == key) {
        return;
      }
      what = "break the link " + key + " " + other;
      broken_links_.insert(std::minmax(key, other));
      for (const auto& [mine, theirs] : {std::pair(key, other), std::pair(other, key)}) {
        OnWorkerAfter(mine, 1, 10, [this, theirs = theirs](SimWorker& w) {
          if (w.run && std::find(w.run->members.begin(), w.run->members.end(), theirs) !=
                           w.run->members.end()) {
            FailRun(w, UnavailableError("lost {}", NameOf(theirs)), NameOf(theirs));
          }
        });
      }
      break;
    }
    case 12: {
      const std::string host = worker.host;
      what = "kill host " + host;
      for (const auto& [other, lost] : workers_) {
        if (lost->alive && !lost->exited && lost->host == host) {
          Kill(other);
        }
      }
      break;
    }
    case 10:
      what = "join";
      Spawn("");
      break;
    case 11:
      what = "drain " + key;
      if (random_.Below(2) == 0) {
        if (coordinator_) {
          Tell(DrainRequested{worker.member->name()});
        }
      } else {
        OnWorkerAfter(key, 0, 1,
                      [this](SimWorker& w) { TellMember(w, TerminateRequested{"SIGTERM"}); });
      }
      break;
    case 13: {
      const std::vector<int64_t> found = FindCheckpoints();
      const auto sound = std::count_if(found.begin(), found.end(), [&](int64_t step) {
        return damaged_.count(step) == 0 && Counts(committed_.at(step), step);
      });
      if (sound < 2) {
        return;
      }
      what = fmt::format("damage checkpoint {}", found.back());
      damaged_.insert(found.back());
      // Whoever needs it finds out.
      for (const auto& [other, lost] : workers_) {
        if (lost->alive && !lost->exited && random_.Below(2) == 0) {
          what += ", kill " + other;
          Kill(other);
        }
      }
      break;
    }
    case 14:
      what = "join and die, again and again";
      JoinAndDie();
      break;
    case 15:
      what = "join with an absurd profile";
      Worker(Spawn(""))->absurd = true;
      break;
    case 16:
      what = DisturbControl();
      break;
    default:
      what = "slow " + key;
      worker.slowdown = 3;
      break;
  }
  result_.faults += (result_.faults.empty() ? "" : ", ") +
                    fmt::format("{:.3f}: ", Seconds(now_.time_since_epoch()) - 1000) + what;
  Trace("FAULT " + what);
}

// Until the job ends.
void Cluster::JoinAndDie() {
  if (ended_) {
    return;
  }
  const std::string key = Spawn("");
  After(300, 900, [this, key] {
    if (Worker(key)->alive && !Worker(key)->exited) {
      Kill(key);
    }
    JoinAndDie();
  });
}

void Cluster::HealAll() {
  Trace("HEAL");
  healed_ = true;
  broken_links_.clear();
  for (auto& [key, worker] : workers_) {
    worker->slowdown = 1;
  }
  if (!coordinator_) {
    After(0, 3100, [this] {
      if (!coordinator_) {
        StartCoordinator();
      }
    });
  }
  Spawn("");
  Spawn("");
}

}  // namespace heddle::elastic
