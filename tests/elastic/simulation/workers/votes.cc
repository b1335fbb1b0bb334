// The vote of a step: who casts it, who learns the norm, and who does not.
#include <algorithm>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/workers/training.h"

namespace heddle::elastic {

void Training::Vote(SimWorker& worker) {
  if (worker.trainer.fails) {
    return End(worker, RunEnded::How::kFailed, OwnFault(), "");
  }
  SimRun& run = *worker.trainer.run;
  run.voted = true;
  ++worker.trainer.progress;
  AwaitVote(worker);
  if (cluster_.fleet.Unreachable(worker) && run.members.size() > 1) {
    return;  // Its vote does not get out.
  }
  Ballot& ballot = ballots_[{run.group, run.step}];
  ballot.voted.insert(worker.key);
  ballot.stop = ballot.stop || run.stop;
  if (ballot.voted.size() == run.members.size() && !ballot.decided) {
    ballot.decided = true;
    Decide(run.group, run.step);
  }
  Hangs(worker);  // Its vote has got out.
}

// Not for ever. What it waits for comes through the next one by rank, from the one after that, and
// so on: along a chain.
void Training::AwaitVote(SimWorker& worker) {
  const SimRun& run = *worker.trainer.run;
  const size_t next = (static_cast<size_t>(run.rank) + 1) % run.members.size();
  worker.trainer.waits.Begin(cluster_.fleet.NameOf(run.members[next]), run.generation);
  const double timeout = OperationTimeoutMs(cluster_.world.options());
  cluster_.fleet.After(
      worker.key, timeout, timeout + 200,
      [this, number = run.number, step = run.step](SimWorker& w) {
        const auto& late = w.trainer.run;
        if (!late || late->number != number || late->step != step || late->learned) {
          return;
        }
        const Ballot& ballot = ballots_[{late->group, step}];
        for (const std::string& key : late->members) {
          if (ballot.voted.count(key) == 0 || !cluster_.links.Carries(key, w.key)) {
            const std::string name = cluster_.fleet.NameOf(key);
            return Fail(w, DeadlineExceededError("waited for {}", name), name);
          }
        }
        Fail(w, DeadlineExceededError("waited"), "");
      });
}

bool Training::IsCrippled(const Ballot& ballot) {
  World& world = cluster_.world;
  bool crippled = !world.options().calm() && world.Happens(80);
  for (const std::string& key : ballot.voted) {
    const SimWorker* member = cluster_.fleet.Find(key);
    crippled = crippled || !member->runs() || cluster_.fleet.Unreachable(*member);
  }
  if (crippled) {
    world.Count("vote crippled");
  }
  return crippled;
}

// All have voted. A member that died after its vote may have taken its part of the exchange with
// it: then each of the others gets the norm or not.
void Training::Decide(int64_t group, int64_t step) {
  const Ballot& ballot = ballots_.at({group, step});
  const bool crippled = IsCrippled(ballot);
  std::set<std::string> blind;
  for (const std::string& key : ballot.voted) {
    const auto hears = [&](const std::string& other) { return cluster_.links.Carries(other, key); };
    if (!cluster_.links.are_whole() &&
        !std::all_of(ballot.voted.begin(), ballot.voted.end(), hears)) {
      cluster_.world.Count("vote not heard by one");  // It waits for the others'.
    } else if (crippled && cluster_.world.random().Below(2) == 0) {
      blind.insert(key);
    } else {
      Learn(key, group, step, crippled ? 600 : 5);
    }
  }
  for (const std::string& key : blind) {  // The exchange broke here although the peer may live.
    cluster_.fleet.After(key, 1, 20, [this, group, step](SimWorker& w) {
      const auto& run = w.trainer.run;
      if (run && run->group == group && run->step == step && !run->learned) {
        Fail(w, UnavailableError("the exchange broke"), "");
      }
    });
  }
}

void Training::Learn(const std::string& key, int64_t group, int64_t step, double slowest_ms) {
  const bool stop = ballots_.at({group, step}).stop;
  cluster_.fleet.After(key, 0.1, 3, [this, group, step, slowest_ms, stop](SimWorker& w) {
    auto& run = w.trainer.run;
    if (!run || run->group != group || run->step != step || w.trainer.stuck ||
        (cluster_.fleet.Unreachable(w) && run->members.size() > 1)) {
      return;
    }
    run->learned = true;
    w.trainer.waits.End();
    run->group_stop = stop;
    cluster_.fleet.After(w.key, 0, slowest_ms, [this, number = run->number, step](SimWorker& x) {
      const auto& again = x.trainer.run;
      if (again && again->number == number && again->step == step && again->learned) {
        Apply(x);
      }
    });
  });
}

}  // namespace heddle::elastic
