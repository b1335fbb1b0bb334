// Faults of workers' processes.
#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/faults/kinds.h"

namespace heddle::elastic::faults {
namespace {

void JoinAndDieAgain(Cluster& cluster) {
  if (cluster.world.ended()) {
    return;
  }
  // With nobody else the job rightly ends: no recovery leads to a step.
  const std::vector<SimWorker*> running = cluster.fleet.Running();
  const bool somebody_stays = std::any_of(running.begin(), running.end(), [&](const SimWorker* w) {
    return !w->dies_soon && !w->stopped_until && !w->trainer.stuck &&
           !cluster.fleet.Unreachable(*w) && cluster.world.now() >= w->control.blocked_until();
  });
  const std::string key = somebody_stays ? cluster.members.Spawn("") : "";
  if (somebody_stays) {
    cluster.fleet.at(key).dies_soon = true;
  }
  cluster.world.After(300, 900, [&cluster, key] {
    if (!key.empty() && cluster.fleet.at(key).runs()) {
      cluster.members.Kill(key);
    }
    JoinAndDieAgain(cluster);
  });
}

// SIGTERM for all that run, within moments.
std::string NoticeAll(Cluster& cluster, double spread_ms) {
  std::string names;
  for (SimWorker* worker : cluster.fleet.Running()) {
    if (worker->noticed) {
      continue;
    }
    worker->noticed = true;
    names += (names.empty() ? "" : " ") + worker->key;
    cluster.fleet.After(worker->key, 0, spread_ms, [&cluster](SimWorker& w) {
      cluster.members.Tell(w, TerminateRequested{"SIGTERM"});
    });
  }
  return fmt::format("{} within {} ms", names, spread_ms);
}

}  // namespace

std::string Kill(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  cluster.members.Kill(worker->key);
  return worker->key;
}

std::string KillHost(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  std::string names = worker->host + ":";
  for (const SimWorker* other : cluster.fleet.Running()) {
    if (other->host == worker->host) {
      cluster.members.Kill(other->key);
      names += " " + other->key;
    }
  }
  return names;
}

std::string KillHalf(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  std::string names;
  for (const SimWorker* worker : cluster.fleet.Running()) {
    if (random.Below(2) == 0) {
      cluster.members.Kill(worker->key);
      names += (names.empty() ? "" : " ") + worker->key;
    }
  }
  return names;
}

std::string Stop(Cluster& cluster, const Fault& fault, Random& random) {
  const SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  const std::string key = worker->key;
  cluster.fleet.Stop(key, FromSeconds(fault.seconds));
  cluster.streams.BreakUnless(
      key, [&cluster, key] { return !cluster.fleet.at(key).stopped_until.has_value(); });
  return fmt::format("{} for {} s", key, fault.seconds);
}

std::string Slow(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  if (!cluster.world.options().priced()) {
    worker->slowdown = 3;
    return worker->key;
  }
  const double usual = worker->usual_slowdown;
  worker->slowdown = worker->slowdown != usual ? usual : std::array{2.0, 5.0}[random.Below(2)];
  return fmt::format("{} takes {} times as long", worker->key, worker->slowdown);
}

std::string Join(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  return cluster.members.Spawn("");
}

std::string JoinAbsurd(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  const std::string key = cluster.members.Spawn("");
  cluster.fleet.at(key).absurd = true;
  return key;
}

// The job's data are known by then, whatever becomes of the coordinator.
std::string JoinUnlike(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  if (cluster.storage.empty()) {
    return "";
  }
  const std::string key = cluster.members.Spawn("");
  cluster.fleet.at(key).data = kOtherData;
  return key;
}

std::string JoinAndDie(Cluster& cluster, const Fault& /*fault*/, Random& /*random*/) {
  JoinAndDieAgain(cluster);
  return "one after another";
}

std::string Drain(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  if (random.Below(2) == 0) {
    if (!cluster.coordinator.answers()) {
      return "";
    }
    cluster.coordinator.leader()->Tell(DrainRequested{worker->member->name()});
    return worker->key + ", by the coordinator";
  }
  const bool twice = random.Below(4) == 0;
  for (const double after_ms : {0.0, 100.0}) {
    if (after_ms == 0 || twice) {
      cluster.fleet.After(worker->key, after_ms, after_ms + 1, [&cluster](SimWorker& w) {
        cluster.members.Tell(w, TerminateRequested{"SIGTERM"});
      });
    }
  }
  return worker->key + (twice ? ", by two signals" : ", by a signal");
}

// While it is planned for, in the middle of the change, or when it has just left.
std::string CancelDrain(Cluster& cluster, const Fault& fault, Random& random) {
  const std::string what = Drain(cluster, fault, random);
  if (what.empty()) {
    return "";
  }
  const std::string key = what.substr(0, what.find(','));
  const double latest_ms = std::array{30.0, 400.0, 1500.0}[random.Below(3)];
  cluster.world.After(1, latest_ms, [&cluster, key] {
    if (cluster.coordinator.answers() && !cluster.world.ended()) {
      cluster.coordinator.leader()->Tell(DrainCancelled{cluster.fleet.NameOf(key)});
    }
  });
  return fmt::format("{}; to stay within {} ms", what, latest_ms);
}

// At once, or at a moment that random times would hit rarely.
std::string Notice(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  static constexpr std::array kPhases = {"",         "training",   "changing",
                                         "changing", "suspending", "suspended"};
  const double spread_ms = std::array{0.0, 3.0, 20.0}[random.Below(3)];
  const std::string phase = kPhases[random.Below(kPhases.size())];
  if (phase.empty()) {
    return NoticeAll(cluster, spread_ms);
  }
  cluster.faults.OnceIn(phase, [&cluster, spread_ms] {
    cluster.world.Note("FAULT notice: " + NoticeAll(cluster, spread_ms));
  });
  return "once the job is " + phase;
}

std::string JumpClock(Cluster& cluster, const Fault& fault, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  cluster.members.JumpClock(*worker, FromSeconds(fault.seconds));
  return fmt::format("{} by {} s", worker->key, fault.seconds);
}

std::string PrepareError(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  worker->trainer.lowering = Lowering::kFails;
  return worker->key + ", the next time";
}

std::string OtherProgram(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  worker->trainer.lowering = Lowering::kDiffers;
  return worker->key + ", the next time";
}

std::string Alter(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  const int32_t parameter = worker == nullptr ? -1 : cluster.alterations.Alter(*worker, random);
  return parameter < 0 ? "" : fmt::format("parameter {} at {}", parameter, worker->key);
}

std::string FailAlone(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr || random.Below(3) == 0) {
    worker = &cluster.fleet.at(cluster.members.Spawn(""));
  }
  worker->trainer.fails = true;
  return worker->key;
}

std::string Stranger(Cluster& cluster, const Fault& /*fault*/, Random& random) {
  const std::string key = cluster.members.Spawn("");
  cluster.fleet.at(key).strange = static_cast<Strange>(1 + random.Below(kStrangeKinds - 1));
  return key;
}

std::string ChangeMoves(Cluster& cluster, const Fault& fault, Random& random) {
  SimWorker* worker = cluster.fleet.RandomRunning(random);
  if (worker == nullptr) {
    return "";
  }
  // Once, or whatever comes.
  worker->trainer.changes.once = random.Below(2) == 0;
  worker->trainer.changes.until = cluster.world.now() + FromSeconds(fault.seconds);
  return fmt::format("what comes to {} for {} s{}", worker->key, fault.seconds,
                     worker->trainer.changes.once ? ", once" : "");
}

}  // namespace heddle::elastic::faults
