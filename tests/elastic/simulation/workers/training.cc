// Runs: their begin, their steps, their end.
#include "tests/elastic/simulation/workers/training.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

void Training::Join(SimWorker& worker, SimRun& run) {
  constexpr int kMaxGenerationBits = 32;
  const wire::Prepare& prepare = cluster_.ledger.PrepareOf(run.generation);
  run.group = (worker.era << kMaxGenerationBits) + run.generation;
  for (const wire::Member& member : prepare.members()) {
    run.members.push_back(member.address());
    if (member.address() == worker.key) {
      run.rank = static_cast<int>(run.members.size()) - 1;
    }
  }
  if (prepare.holders_size() > 0) {
    for (const int32_t rank : prepare.holders(run.rank).ranks()) {
      run.holders.push_back(run.members[static_cast<size_t>(rank)]);
    }
  }
}

void Training::Begin(SimWorker& worker, const RunSteps& run) {
  World& world = cluster_.world;
  cluster_.ledger.NoteRun(run.generation, run.applied_step);
  if (worker.trainer.held_generation != run.generation) {
    world.Fail(fmt::format("{} runs generation {} with the state of {}", worker.key, run.generation,
                           worker.trainer.held_generation));
  }
  if (worker.data != kJobData) {
    world.Fail(worker.key + " trains on other data than the job's");
  }
  SimRun next;
  next.generation = run.generation;
  next.step = run.applied_step;
  next.number = world.NextNumber();
  next.began = world.now();
  Join(worker, next);
  worker.trainer.run = next;
  if (run.save) {
    Save(worker, run.generation, run.applied_step);
  }
  if (run.validate) {
    Validate(worker);
  }
  for (const std::string& key : next.members) {
    const SimWorker* member = cluster_.fleet.Find(key);
    if (member == nullptr || !member->runs()) {
      ++worker.trainer.run->step;  // In flight, its vote not cast.
      cluster_.fleet.After(worker.key, 1, 10, [this, number = next.number](SimWorker& w) {
        if (w.trainer.run && w.trainer.run->number == number) {
          Fail(w, UnavailableError("lost a peer"), "");
        }
      });
      return;
    }
  }
  Advance(worker);
}

void Training::Advance(SimWorker& worker) {
  SimRun& run = *worker.trainer.run;
  if (run.step == cluster_.world.options().steps) {
    return End(worker, RunEnded::How::kFinished, Status::Ok(), "");
  }
  if (run.group_stop) {
    return End(worker, RunEnded::How::kStopped, Status::Ok(), "");
  }
  ++run.step;
  run.voted = run.learned = false;
  const SimOptions& options = cluster_.world.options();
  double least =
      static_cast<double>(options.step_ms) * std::max(worker.slowdown, worker.link_slowdown);
  double most = 3 * least;
  if (options.replayed > 0) {
    most = least = least * options.replayed / static_cast<double>(run.members.size());
  } else if (options.priced()) {
    run.noise = cluster_.prices.DrawNoise(worker);
    most = least = 1000 * cluster_.prices.SecondsOf(worker, run.generation) * run.noise;
  }
  cluster_.fleet.After(worker.key, least, most, [this, number = run.number](SimWorker& w) {
    if (w.trainer.run && w.trainer.run->number == number && !Hangs(w)) {
      Vote(w);
    }
  });
}

bool Training::Hangs(SimWorker& worker) {
  const World& world = cluster_.world;
  const bool even = world.healed() || world.options().calm();
  if (even || !cluster_.world.Happens(1500)) {
    return false;
  }
  cluster_.members.Hang(worker);
  return true;
}

void Training::Apply(SimWorker& worker) {
  World& world = cluster_.world;
  SimRun& run = *worker.trainer.run;
  cluster_.ledger.CheckApplies(worker);
  ApplyVoted(worker, run.step);
  const int64_t number = run.number;
  if (world.options().control_faults_only &&
      world.now() - last_applied_ > std::chrono::seconds(1) &&
      run.step > cluster_.ledger.StepBefore(run.generation) + 1) {
    world.Fail(fmt::format("training stood still for {:.2f} s before step {}",
                           Seconds(world.now() - last_applied_), run.step));
  }
  wire::StepRecord record = cluster_.undisturbed.Record(run.step, run.generation);
  record.set_seconds(Seconds(world.now() - std::max(run.began, worker.trainer.last_applied)));
  last_applied_ = worker.trainer.last_applied = world.now();
  ++worker.trainer.progress;
  cluster_.members.Tell(worker, StepApplied{record, 0.2 * worker.slowdown * run.noise, 0.2});
  if (!worker.trainer.run || worker.trainer.run->number != number) {
    return;
  }
  const JobPolicy& policy = cluster_.coordinator.job().policy;
  if (DigestsDue(policy, run.step)) {
    world.Count("digests told");
    cluster_.members.Tell(
        worker, StateDigested{run.generation, SimCertificate(worker.trainer.held, run.step)});
  }
  if (!worker.trainer.run || worker.trainer.run->number != number) {
    return;
  }
  cluster_.snapshots.Take(worker);
  if (ValidationDue(policy, run.step)) {
    Validate(worker);
  }
  if (CheckpointDue(policy, run.step)) {
    Save(worker, run.generation, run.step);
  }
  Advance(worker);
}

void Training::ApplyVoted(SimWorker& worker, int64_t step) {
  const Undisturbed& undisturbed = cluster_.undisturbed;
  ApplyStep(worker, step, undisturbed.Norm(step), undisturbed.Refused(step));
}

void Training::ApplyStep(SimWorker& worker, int64_t step, double norm, bool skip) {
  for (auto& [parameter, value] : worker.trainer.held) {
    if (value.step != step - 1) {
      cluster_.world.Fail(
          fmt::format("{} applies step {} to the state after {}", worker.key, step, value.step));
    }
    value.step = step;
    if (!skip) {
      value.chain = NextChain(value.chain, step, norm);
    }
  }
}

void Training::Validate(SimWorker& worker) {
  const int64_t generation = worker.trainer.run->generation;
  const int64_t step = worker.trainer.run->step;
  cluster_.members.Tell(worker, Validated{generation, step, SimValidation(step, generation)});
}

void Training::SaveAtRest(SimWorker& worker, const SaveState& save) {
  World& world = cluster_.world;
  const SimTrainer& trainer = worker.trainer;
  if (trainer.run || trainer.held_generation != save.generation ||
      trainer.held.begin()->second.step != save.step) {
    world.Fail(fmt::format("{} saves step {} of generation {}, and holds another state", worker.key,
                           save.step, save.generation));
  } else if (trainer.saved_step != save.step) {
    world.Count("saved at rest");
    Save(worker, save.generation, save.step);
  } else {
    world.Count("saved before it came to rest");
  }
}

void Training::Save(SimWorker& worker, int64_t generation, int64_t step) {
  worker.trainer.saved_step = step;
  wire::CheckpointPart part;
  part.set_step(step);
  part.set_generation(generation);
  std::string text;
  for (const auto& [parameter, value] : worker.trainer.held) {
    text += fmt::format("{} {} {} {} ", parameter, value.step, value.chain, value.altered);
  }
  part.set_part(text);
  if (!worker.trainer.run && !cluster_.world.options().calm() && cluster_.world.Happens(10)) {
    part.clear_part();
    part.set_error("the disk is full");
  }
  if (step == cluster_.world.options().steps) {
    return cluster_.members.Tell(worker, Saved{part});  // RunEnded comes after it.
  }
  cluster_.fleet.After(worker.key, 5, 150,
                       [this, part](SimWorker& w) { cluster_.members.Tell(w, Saved{part}); });
}

// ---- The end of a run ----

void Training::Fail(SimWorker& worker, const Status& status, const std::string& peer) {
  auto& run = worker.trainer.run;
  if (worker.trainer.stuck) {
    return;  // Whatever its connections see.
  }
  // What was learned may be applied before the failure is noticed, or only reported.
  if (run->learned && cluster_.world.random().Below(2) == 0) {
    ApplyVoted(worker, run->step);
    const wire::StepRecord record = cluster_.undisturbed.Record(run->step, run->generation);
    run->voted = run->learned = false;
    ++run->step;  // The next one is in flight, its vote not cast.
    cluster_.members.Tell(worker, StepApplied{record, 0.2 * worker.slowdown, 0.2});
    if (!run) {
      return;
    }
  }
  End(worker, RunEnded::How::kFailed, status, peer);
}

void Training::End(SimWorker& worker,
                   RunEnded::How how,
                   const Status& status,
                   const std::string& peer) {
  const SimRun run = *worker.trainer.run;
  worker.trainer.waits.End();
  RunEnded ended;
  ended.generation = run.generation;
  ended.how = how;
  ended.status = status;
  ended.peer = peer;
  ended.applied_step = run.step;
  if (how == RunEnded::How::kFailed) {
    ended.applied_step = run.step - 1;
    ended.voted = run.voted;
    worker.trainer.kept_vote = run.voted ? run.step : 0;
    if (run.learned) {
      ended.voted_record = cluster_.undisturbed.Record(run.step, run.generation);
      cluster_.world.Count("norm known, not applied");
    }
  }
  if (cluster_.world.options().planted == Planted::kIgnoreFence && how == RunEnded::How::kFailed &&
      run.voted && !run.learned) {
    // The abort is reported, yet the exchange goes on behind it.
    cluster_.fleet.After(worker.key, 1, 300, [this, step = run.step](SimWorker& w) {
      const SimState& held = w.trainer.held;
      if (!held.empty() && held.begin()->second.step == step - 1) {
        ApplyVoted(w, step);
      }
    });
  }
  worker.trainer.run.reset();
  cluster_.members.Tell(worker, ended);
}

// ---- Peers that die ----

void Training::PeerVanished(const std::string& key) {
  const std::string name = cluster_.fleet.NameOf(key);
  for (const auto& [other, worker] : cluster_.fleet.workers()) {
    const auto& run = worker->trainer.run;
    if (other == key || !run ||
        std::find(run->members.begin(), run->members.end(), key) == run->members.end()) {
      continue;
    }
    const bool neighbour = !cluster_.world.Happens(3);
    cluster_.fleet.After(other, neighbour ? 1 : 5, neighbour ? 15 : 40,
                         [this, number = run->number, name, neighbour](SimWorker& w) {
                           if (w.trainer.run && w.trainer.run->number == number) {
                             LoseOne(w, name, neighbour);
                           }
                         });
  }
}

// Who is no neighbour sees another one abort, and takes that one for the culprit.
void Training::LoseOne(SimWorker& worker, const std::string& name, bool neighbour) {
  World& world = cluster_.world;
  const auto& run = worker.trainer.run;
  const int64_t number = run->number;
  std::string blamed = name;
  if (!neighbour) {
    blamed = cluster_.fleet.NameOf(run->members[world.random().Below(run->members.size())]);
    world.Count("wrong one blamed");
  }
  if (world.random().Below(2) == 0) {
    cluster_.members.Tell(worker, PeerSeenLost{run->generation, blamed, "reset"});
  }
  if (run && run->number == number) {
    Fail(worker, UnavailableError("lost {}", blamed), blamed);
  }
}

}  // namespace heddle::elastic
