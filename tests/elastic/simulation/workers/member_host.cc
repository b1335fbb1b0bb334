#include "tests/elastic/simulation/workers/member_host.h"

#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

// ---- The process ----

std::string MemberHost::Spawn(const std::string& name) {
  const std::string key = cluster_.fleet.Add(name).key;
  cluster_.fleet.After(key, 0, 200, [this](SimWorker& w) { cluster_.streams.Connect(w.key); });
  return key;
}

void MemberHost::Kill(const std::string& key) {
  SimWorker& worker = cluster_.fleet.at(key);
  worker.alive = false;
  worker.trainer.run.reset();
  worker.trainer.moving.reset();
  const bool silent = cluster_.fleet.Unreachable(worker);
  cluster_.streams.Break(key, !silent);
  if (!silent) {  // Otherwise only time-outs tell.
    cluster_.training.PeerVanished(key);
  }
  if (cluster_.world.options().local) {
    cluster_.world.After(0, 20, [this, key, pid = worker.pid] {
      if (cluster_.coordinator.answers()) {
        cluster_.coordinator.leader()->Tell(
            ProcessExited{cluster_.fleet.NameOf(key), pid, "killed by SIGKILL"});
      }
    });
  }
}

void MemberHost::Exit(SimWorker& worker, const ExitWorker& exit) {
  World& world = cluster_.world;
  world.Trace(fmt::format("{} exits {}: {}", worker.key, exit.code, exit.reason));
  world.Count(fmt::format("exit {}", exit.code));
  cluster_.streams.Break(worker.key, true);
  worker.exited = true;
  cluster_.training.PeerVanished(worker.key);
  const bool notices_only = world.options().notices_only;
  if (notices_only && !world.ended() && !worker.trainer.held.empty() && exit.code != kExitRequeue) {
    world.Fail(fmt::format("{} held state and exits {}", worker.key, exit.code));
  }
  if (exit.begins_anew) {
    world.Count("begins anew");
    cluster_.leaves.CheckBeginsAnew(worker);
  }
  // Who started it starts it again.
  const bool again = exit.code == kExitRequeue || (notices_only && worker.noticed);
  if (exit.begins_anew || again) {
    world.After(500, again ? 3000 : 600, [this, name = worker.member->name()] {
      if (!cluster_.world.ended()) {
        Spawn(name);
      }
    });
  }
}

void MemberHost::Tell(SimWorker& worker, const MemberEvent& event) {
  if (std::holds_alternative<TerminateRequested>(event)) {
    ++worker.notices;
    cluster_.leaves.NoteNotice(worker);
  }
  const auto* said = std::get_if<FromCoordinator>(&event);
  if (said != nullptr && said->message.has_welcome()) {
    worker.era = cluster_.fleet.era();
    worker.welcome = cluster_.world.NextNumber();
  }
  for (const MemberAction& action : worker.member->Handle(event, cluster_.fleet.TimeOf(worker))) {
    Perform(worker, action);
    if (!worker.runs()) {
      return;
    }
  }
  ScheduleTick(worker);
}

void MemberHost::ScheduleTick(SimWorker& worker) {
  const std::optional<Time> next = worker.member->NextDeadline();
  if (!next || (worker.tick_at && *worker.tick_at <= *next)) {
    return;
  }
  worker.tick_at = next;
  const Time wakes = worker.clock.When(*next) + cluster_.world.Lateness();
  cluster_.fleet.At(worker.key, wakes, [this, at = *next](SimWorker& w) {
    if (w.tick_at != at) {
      return;  // An earlier one came in between, or its clock jumped.
    }
    w.tick_at.reset();
    const std::optional<Time> due = w.member->NextDeadline();
    if (due && *due <= cluster_.fleet.TimeOf(w)) {
      Tell(w, MemberTicked{.progress = w.trainer.progress,
                           .waits = w.trainer.waits.any,
                           .waits_for = w.trainer.waits.names,
                           .waits_generation = w.trainer.waits.generation});
      const std::optional<Time> then = w.member->NextDeadline();
      if (then && *then <= cluster_.fleet.TimeOf(w)) {
        cluster_.world.Fail(w.key +
                            "'s deadline has passed, and it would be woken for it for ever");
      }
    } else {
      ScheduleTick(w);
    }
  });
}

// ---- Actions ----

void MemberHost::Perform(SimWorker& worker, const MemberAction& action) {
  const std::string key = worker.key;
  if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
    cluster_.streams.ToCoordinator(worker, send->message);
  } else if (const auto* apply = std::get_if<ApplyJob>(&action)) {
    worker.secret = apply->welcome.secret();
    cluster_.fleet.After(key, 1, 5, [this](SimWorker& w) {
      const bool fails = w.trainer.fails && cluster_.world.random().Below(2) == 0;
      JobApplied applied{fails ? InvalidArgumentError("the data is not here") : Status::Ok()};
      if (w.device_of_job) {
        applied.arithmetic = {{"kind", std::to_string(w.kind)}};
      }
      Tell(w, applied);
    });
  } else if (std::holds_alternative<MeasureProfile>(action)) {
    WorkFor(key, 10, 60, [this](SimWorker& w) {
      Tell(w, ProfileMeasured{w.trainer.fails ? OwnFault() : Status::Ok(),
                              w.absurd ? kAbsurdProfile : "{}", w.data});
    });
  } else if (const auto* probe = std::get_if<ProbeLinks>(&action)) {
    cluster_.moves.BeginProbe(worker, probe->request);
  } else if (const auto* lower = std::get_if<LowerPlan>(&action)) {
    WorkFor(key, 1, 10, [this, lowered = *lower](SimWorker& w) { Lower(w, lowered); });
  } else if (const auto* abort = std::get_if<AbortBelow>(&action)) {
    Abort(worker, *abort);
  } else if (const auto* settle = std::get_if<SettleStep>(&action)) {
    Settle(worker, *settle);
  } else if (const auto* adopt = std::get_if<AdoptState>(&action)) {
    Adopt(worker, *adopt);
  } else if (std::holds_alternative<DiscardState>(action)) {
    worker.trainer.staged.clear();
    worker.trainer.staged_generation = 0;
  } else if (const auto* move = std::get_if<MoveState>(&action)) {
    cluster_.moves.Begin(worker, *move);
  } else if (const auto* run = std::get_if<RunSteps>(&action)) {
    cluster_.training.Begin(worker, *run);
  } else if (const auto* save = std::get_if<SaveState>(&action)) {
    cluster_.training.SaveAtRest(worker, *save);
  } else if (const auto* stop = std::get_if<RequestStop>(&action)) {
    auto& current = worker.trainer.run;
    if (current && current->generation == stop->generation) {
      current->stop = true;
    }
  } else if (const auto* exit = std::get_if<ExitWorker>(&action)) {
    Exit(worker, *exit);
  }
}

void MemberHost::Lower(SimWorker& worker, const LowerPlan& lower) {
  const Lowering lowering = std::exchange(worker.trainer.lowering, Lowering::kWorks);
  PlanLowered lowered{lower.generation, Status::Ok(),
                      Hash64(lower.plan_json + worker.member->name())};
  if (lowering == Lowering::kFails) {
    cluster_.world.Count("a plan cannot be prepared");
    lowered.status = ResourceExhaustedError("no memory for the plan");
  } else if (lowering == Lowering::kDiffers) {
    cluster_.world.Count("a program differs");
    ++lowered.program_hash;
  }
  Tell(worker, lowered);
}

void MemberHost::JumpClock(SimWorker& worker, Duration time) {
  worker.clock.Jump(time);
  worker.tick_at.reset();
  ScheduleTick(worker);
}

void MemberHost::Abort(SimWorker& worker, const AbortBelow& abort) {
  worker.trainer.fence = abort.generation;
  WorkFor(worker.key, 0, 3, [this, fence = abort.generation](SimWorker& w) {
    SimTrainer& trainer = w.trainer;
    if (trainer.stuck) {
      return;
    }
    if (trainer.moving && trainer.moving->start.generation() < fence) {
      trainer.waits.End();
      cluster_.moves.End(w, AbortedError("fenced"), "");
    }
    if (trainer.run && trainer.run->generation < fence) {
      cluster_.training.Fail(w, AbortedError("fenced"), "");
    }
  });
}

void MemberHost::Settle(SimWorker& worker, const SettleStep& settle) {
  World& world = cluster_.world;
  const Planted planted = world.options().planted;
  world.Count("settled");
  if (planted == Planted::kSkipSettle) {
    return;
  }
  if (worker.trainer.kept_vote != settle.step) {
    world.Fail(fmt::format("{} settles step {} without its gradients", worker.key, settle.step));
  }
  if (settle.skip) {
    world.Count("settled without its update");
  }
  cluster_.training.ApplyStep(worker, settle.step, settle.norm,
                              settle.skip && planted != Planted::kApplySkipped);
  worker.trainer.kept_vote = 0;
}

void MemberHost::Adopt(SimWorker& worker, const AdoptState& adopt) {
  SimTrainer& trainer = worker.trainer;
  if (trainer.staged_generation != adopt.generation) {
    cluster_.world.Fail(fmt::format("{} adopts {} and has {}", worker.key, adopt.generation,
                                    trainer.staged_generation));
  }
  trainer.held = std::exchange(trainer.staged, {});
  trainer.held_generation = std::exchange(trainer.staged_generation, 0);
  trainer.saved_step = -1;
  // One that forgets nothing must do no harm: the coordinator knows what is void.
  if (trainer.held.empty() || !cluster_.world.Happens(2)) {
    cluster_.snapshots.Forget(worker, trainer.held.empty() ? 0 : trainer.staged_step);
  }
}

// ---- The trainer's pace ----

void MemberHost::WorkFor(const std::string& key,
                         double low_ms,
                         double high_ms,
                         std::function<void(SimWorker&)> call) {
  World& world = cluster_.world;
  const bool even = world.healed() || world.options().calm();
  if (!even && world.Happens(150)) {
    return Hang(cluster_.fleet.at(key));
  }
  if (!even && world.Happens(150)) {
    world.Count("slow, with progress");
    const Time end = world.now() + FromSeconds(5 + 40 * world.random().Uniform());
    return WorkUntil(key, end, std::move(call));
  }
  cluster_.fleet.After(key, low_ms, high_ms, std::move(call));
}

// It may look like all others: that it waits for one that runs what it runs.
void MemberHost::Hang(SimWorker& worker) {
  World& world = cluster_.world;
  SimTrainer& trainer = worker.trainer;
  trainer.stuck = true;
  trainer.waits.End();
  world.Count(trainer.run ? "stuck in a step" : "stuck");
  if (!world.Happens(3)) {
    return;
  }
  world.Count(trainer.run ? "stuck in a step, and says it waits" : "stuck, and says it waits");
  trainer.waits.any = true;
  if (trainer.run) {
    const auto& members = trainer.run->members;
    trainer.waits.Begin(cluster_.fleet.NameOf(members[world.random().Below(members.size())]),
                        trainer.run->generation);
  } else if (trainer.moving) {
    const wire::Start& start = trainer.moving->start;
    const auto chosen =
        static_cast<int>(world.random().Below(static_cast<uint64_t>(start.move_members_size())));
    trainer.waits.Begin(start.move_members(chosen).name(), start.move_generation());
  }
}

void MemberHost::WorkUntil(const std::string& key, Time end, std::function<void(SimWorker&)> call) {
  cluster_.fleet.After(key, 500, 4000, [this, key, end, call = std::move(call)](SimWorker& w) {
    ++w.trainer.progress;
    return cluster_.world.now() >= end ? call(w) : WorkUntil(key, end, call);
  });
}

}  // namespace heddle::elastic
