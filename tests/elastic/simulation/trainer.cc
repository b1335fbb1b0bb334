// The simulated data plane: votes, moves and checkpoints, with the outcomes that a real one can
// have when a peer dies in the middle of them.
#include <algorithm>

#include <fmt/format.h>

#include "base/hash.h"
#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

constexpr double kOperationTimeoutMs = 3000;

// As the coordinator's shell does it.
wire::FromWorker Checked(wire::FromWorker message) {
  if (message.has_profiled() && message.profiled().profile_json() == kAbsurdProfile) {
    message.mutable_profiled()->clear_profile_json();
    message.mutable_profiled()->set_error("a rate is no number");
  }
  return message;
}

}  // namespace

std::string Cluster::NameOf(const std::string& key) {
  SimWorker* worker = Worker(key);
  return worker == nullptr ? "" : worker->member->name();
}

void Cluster::Perform(SimWorker& worker, const MemberAction& action) {
  const std::string key = worker.key;
  if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
    if (!send->message.has_heartbeat()) {
      Trace(fmt::format("from {}: {}", key, send->message.ShortDebugString()));
    }
    if (worker.connection == 0 || Unreachable(worker) || now_ < worker.control_cut_until) {
      return;
    }
    const int copies = random_.Below(50) == 0 && !send->message.has_hello() ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      worker.to_coordinator = std::max({worker.to_coordinator, worker.control_frozen_until,
                                        now_ + FromSeconds(0.0001 + 0.003 * random_.Uniform())}) +
                              Duration(1);
      At(worker.to_coordinator,
         [this, connection = worker.connection, message = send->message, life = coordinator_life_] {
           if (coordinator_ && life == coordinator_life_ && streams_.count(connection) > 0) {
             Tell(Received{connection, Checked(message)});
           }
         });
    }
  } else if (std::holds_alternative<ApplyJob>(action)) {
    OnWorkerAfter(key, 1, 5, [this](SimWorker& w) { TellMember(w, JobApplied{Status::Ok()}); });
  } else if (std::holds_alternative<MeasureProfile>(action)) {
    WorkFor(key, 10, 60, [this](SimWorker& w) {
      TellMember(w, ProfileMeasured{Status::Ok(), w.absurd ? kAbsurdProfile : "{}"});
    });
  } else if (const auto* probe = std::get_if<ProbeLinks>(&action)) {
    BeginProbe(worker, probe->request);
  } else if (const auto* lower = std::get_if<LowerPlan>(&action)) {
    WorkFor(key, 1, 10, [this, lowered = *lower](SimWorker& w) {
      TellMember(w, PlanLowered{lowered.generation, Status::Ok(),
                                Hash64(lowered.plan_json + w.member->name())});
    });
  } else if (const auto* abort = std::get_if<AbortBelow>(&action)) {
    worker.fence = abort->generation;
    WorkFor(key, 0, 3, [this, fence = abort->generation](SimWorker& w) {
      w.waits = false;
      if (w.stuck) {
        return;
      }
      if (w.moving && w.moving->start.generation() < fence) {
        EndMove(w, AbortedError("fenced"), "");
      }
      if (w.run && w.run->generation < fence) {
        FailRun(w, AbortedError("fenced"), "");
      }
    });
  } else if (const auto* settle = std::get_if<SettleStep>(&action)) {
    ++result_.probes["settled"];
    if (options_.planted == Planted::kSkipSettle) {
      return;
    }
    if (worker.kept_vote != settle->step) {
      Fail(fmt::format("{} settles step {} without its gradients", key, settle->step));
    }
    const bool skip = settle->skip && options_.planted != Planted::kApplySkipped;
    result_.probes["settled without its update"] += settle->skip ? 1 : 0;
    ApplyStep(worker, settle->step, settle->norm, skip);
    worker.kept_vote = 0;
  } else if (const auto* adopt = std::get_if<AdoptState>(&action)) {
    if (worker.staged_generation != adopt->generation) {
      Fail(
          fmt::format("{} adopts {} and has {}", key, adopt->generation, worker.staged_generation));
    }
    worker.held = std::exchange(worker.staged, {});
    worker.held_generation = std::exchange(worker.staged_generation, 0);
    // One that forgets nothing must do no harm: the coordinator knows what is void.
    if (worker.held.empty() || random_.Below(2) == 0) {
      ForgetParts(worker, worker.held.empty() ? 0 : worker.staged_step);
    }
  } else if (std::holds_alternative<DiscardState>(action)) {
    worker.staged.clear();
    worker.staged_generation = 0;
  } else if (const auto* move = std::get_if<MoveState>(&action)) {
    BeginMove(worker, *move);
  } else if (const auto* run = std::get_if<RunSteps>(&action)) {
    BeginRun(worker, *run);
  } else if (const auto* stop = std::get_if<RequestStop>(&action)) {
    if (worker.run && worker.run->generation == stop->generation) {
      worker.run->stop = true;
    }
  } else if (const auto* exit = std::get_if<ExitWorker>(&action)) {
    Trace(fmt::format("{} exits {}: {}", key, exit->code, exit->reason));
    ++result_.probes[fmt::format("exit {}", exit->code)];
    BreakStream(key, true);
    worker.exited = true;
    PeerVanished(key, false);
    if (exit->begins_anew) {
      ++result_.probes["begins anew"];
      After(500, 600, [this, name = worker.member->name()] {
        if (!ended_) {
          Spawn(name);
        }
      });
    }
  }
}

// ---- State ----

wire::StepRecord Cluster::Record(int64_t step, int64_t generation) const {
  wire::StepRecord record;
  record.set_step(step);
  record.set_generation(generation);
  record.set_loss(SimLoss(step, options_.refused_every));
  record.set_gradient_norm(SimNorm(step, options_.refused_every));
  record.set_not_finite(Refused(step));
  record.set_tokens(100);
  record.set_seconds(0.05);
  record.set_first_sample((step - 1) * 8);
  record.set_samples(8);
  return record;
}

void Cluster::ApplyStep(SimWorker& worker, int64_t step) {
  ApplyStep(worker, step, SimNorm(step, options_.refused_every), Refused(step));
}

void Cluster::ApplyStep(SimWorker& worker, int64_t step, double norm, bool skip) {
  for (auto& [parameter, value] : worker.held) {
    if (value.step != step - 1) {
      Fail(fmt::format("{} applies step {} to the state after {}", worker.key, step, value.step));
    }
    value.step = step;
    if (!skip) {
      value.chain = Hash64(fmt::format("{} {}", step, norm), value.chain);
    }
  }
}

// ---- Links ----

// A peer that is not there costs the bound of each transport; one that stands still costs more.
void Cluster::BeginProbe(SimWorker& worker, const wire::MeasureLinks& request) {
  const bool fails = random_.Below(30) == 0;
  const auto answer = [this, request, fails](SimWorker& w) {
    const std::string& other = request.members(1 - request.rank()).address();
    const SimWorker* peer = Worker(other);
    const bool joined = !fails && peer != nullptr && peer->alive && !peer->exited &&
                        !Unreachable(*peer) && !Unreachable(w) &&
                        broken_links_.count(std::minmax(w.key, other)) == 0;
    LinksProbed probed;
    probed.answer.set_request(request.request());
    for (const std::string& transport : request.transports()) {
      wire::LinksMeasured::Link& link = *probed.answer.add_links();
      link.set_transport(transport);
      if (joined) {
        link.set_latency_seconds(1e-5);
        link.set_bytes_per_second(1e9);
      } else {
        link.set_error("deadline passed");
      }
    }
    TellMember(w, probed);
  };
  const bool slow = random_.Below(30) == 0;
  OnWorkerAfter(worker.key, 20, slow ? 4000 : 120, answer);
}

// ---- Moves ----

void Cluster::BeginMove(SimWorker& worker, const MoveState& move) {
  if (worker.run) {
    Fail(worker.key + " moves while it runs");
  }
  if (move.start.move_generation() < worker.fence) {
    Fail(worker.key + " moves below its fence");
  }
  worker.moving = move;
  const int64_t number = worker.move_number = next_number_++;
  // Looks again every few milliseconds: until all have come, and, where some leave, until all have
  // what they need of them.
  const auto look = std::make_shared<std::function<void(SimWorker&, bool)>>();
  const Time deadline = now_ + FromSeconds(kOperationTimeoutMs / 1000);
  *look = [this, number, deadline,
           weak = std::weak_ptr<std::function<void(SimWorker&, bool)>>(look)](SimWorker& w,
                                                                              bool moved) {
    if (!w.moving || w.move_number != number || w.stuck) {
      return;
    }
    const auto again = weak.lock();
    if (!AwaitMove(w, number, moved ? Time::max() : deadline, moved)) {
      OnWorkerAfter(w.key, 3, 12, [again, moved](SimWorker& x) { (*again)(x, moved); });
      return;
    }
    if (!w.moving || w.move_number != number) {
      return;  // It has failed.
    }
    const wire::Start& start = w.moving->start;
    if (moved) {
      const bool damaged =
          (start.has_replicas() && random_.Below(8) == 0) ||
          (start.has_checkpoint_step() && damaged_.count(start.checkpoint_step()) > 0);
      return EndMove(w, damaged ? DataLossError("a checksum differs") : Status::Ok(), "");
    }
    WorkFor(w.key, 0, 2, [number, again](SimWorker& x) {
      if (x.moving && x.move_number == number) {
        x.moved_generation = x.moving->start.generation();
        (*again)(x, true);
      }
    });
  };
  OnWorkerAfter(worker.key, 5, 100, [look](SimWorker& w) { (*look)(w, false); });
}

// Whether it need not wait for others any longer; with an error the move has ended.
bool Cluster::AwaitMove(SimWorker& worker, int64_t /*number*/, Time deadline, bool all_have_moved) {
  const wire::Start& start = worker.moving->start;
  const int64_t generation = start.generation();
  std::string missing;
  for (const wire::Member& member : start.move_members()) {
    SimWorker* peer = Worker(member.address());
    const auto link = std::minmax(worker.key, member.address());
    if (peer == nullptr || !peer->alive || peer->exited || broken_links_.count(link) > 0) {
      worker.waits = false;
      EndMove(worker, UnavailableError("lost {}", member.name()), member.name());
      return true;
    }
    const bool staged = peer->staged_generation == generation;
    const bool there =
        staged || (all_have_moved ? peer->moved_generation == generation
                                  : peer->moving && peer->moving->start.generation() == generation);
    if (!there || Unreachable(*peer) || peer->stopped_until) {
      missing = member.name();
    }
  }
  worker.waits = !missing.empty();
  if (!missing.empty() && now_ >= deadline) {
    worker.waits = false;
    EndMove(worker, DeadlineExceededError("waited for {}", missing), missing);
    return true;
  }
  return missing.empty();
}

void Cluster::WorkFor(const std::string& key,
                      double low_ms,
                      double high_ms,
                      std::function<void(SimWorker&)> call) {
  const uint64_t luck = healed_ || options_.control_faults_only ? 0 : random_.Below(150);
  if (luck == 1) {
    Worker(key)->stuck = true;
    ++result_.probes["stuck"];
    return;
  }
  if (luck == 2) {
    ++result_.probes["slow, with progress"];
    return WorkUntil(key, now_ + FromSeconds(5 + 40 * random_.Uniform()), std::move(call));
  }
  OnWorkerAfter(key, low_ms, high_ms, std::move(call));
}

void Cluster::WorkUntil(const std::string& key, Time end, std::function<void(SimWorker&)> call) {
  OnWorkerAfter(key, 500, 4000, [this, key, end, call = std::move(call)](SimWorker& w) {
    ++w.progress;
    return now_ >= end ? call(w) : WorkUntil(key, end, call);
  });
}

void Cluster::EndMove(SimWorker& worker, const Status& status, const std::string& peer) {
  const MoveState move = *std::exchange(worker.moving, std::nullopt);
  StateMoved moved;
  moved.generation = move.start.generation();
  moved.status = status;
  moved.peer = peer;
  if (status.ok()) {
    const wire::Start& start = move.start;
    worker.staged.clear();
    worker.staged_generation = start.generation();
    worker.staged_step = start.applied_step();
    for (const auto& [name, parameters] : DecodeSimPlan(move.prepared.plan_json())) {
      if (name != worker.member->name()) {
        continue;
      }
      for (const int32_t parameter : parameters) {
        SimParameter value;
        if (start.has_held()) {
          const SimWorker* source = nullptr;
          for (const std::string& holder : start.held().workers()) {
            const SimWorker* other = Named(holder);
            if (other != nullptr && other->held.count(parameter) > 0 &&
                (source == nullptr || other == &worker)) {
              source = other;
            }
          }
          if (source == nullptr) {
            Fail(fmt::format("nobody holds parameter {} of generation {}", parameter,
                             start.held().generation()));
            return;
          }
          if (source->held_generation != start.held().generation()) {
            Fail(fmt::format("{} holds generation {}, not {}", source->key, source->held_generation,
                             start.held().generation()));
          }
          value = source->held.at(parameter);
          moved.bytes["memory"] += source == &worker ? 0 : 8;
        } else if (start.has_replicas()) {
          const auto part = ReadPart(worker, start, parameter);
          if (!part) {
            return;
          }
          value = *part;
          moved.bytes["replica"] += 8;
        } else {
          if (!start.initial() && committed_.count(start.checkpoint_step()) == 0) {
            Fail(fmt::format("checkpoint {} does not exist", start.checkpoint_step()));
          }
          value = {start.applied_step(), Chain(start.applied_step())};
          moved.bytes["checkpoint"] += 8;
        }
        if (value.step != start.applied_step() || value.chain != Chain(start.applied_step())) {
          Fail(fmt::format(
              "generation {} starts from step {} and {} got parameter {} after step {}",
              start.generation(), start.applied_step(), worker.key, parameter, value.step));
        }
        worker.staged[parameter] = value;
      }
    }
    worker.kept_vote = 0;
    moved.seconds = options_.tells_moves ? 0.01 + random_.Uniform() : 0;
  }
  TellMember(worker, moved);
}

// ---- Steps ----

void Cluster::BeginRun(SimWorker& worker, const RunSteps& run) {
  const auto [start, is_new] = start_of_generation_.emplace(run.generation, run.applied_step);
  if (!is_new && start->second != run.applied_step) {
    Fail(fmt::format("generation {} starts from steps {} and {}", run.generation, start->second,
                     run.applied_step));
  }
  if (worker.held_generation != run.generation) {
    Fail(fmt::format("{} runs generation {} with the state of {}", worker.key, run.generation,
                     worker.held_generation));
  }
  SimWorker::Run next;
  next.generation = run.generation;
  next.step = run.applied_step;
  next.number = next_number_++;
  for (const auto& [name, parameters] : DecodeSimPlan(plan_of_generation_.at(run.generation))) {
    SimWorker* member = Named(name);
    next.members.push_back(member == nullptr ? "gone" : member->key);
    if (name == worker.member->name()) {
      next.rank = static_cast<int>(next.members.size()) - 1;
    }
  }
  worker.run = next;
  if (run.save) {
    Save(worker);
  }
  if (run.validate) {
    Validate(worker);
  }
  for (const std::string& key : worker.run->members) {
    const SimWorker* member = Worker(key);
    if (member == nullptr || !member->alive || member->exited) {
      ++worker.run->step;  // In flight, its vote not cast.
      OnWorkerAfter(worker.key, 1, 10, [this, number = next.number](SimWorker& w) {
        if (w.run && w.run->number == number) {
          FailRun(w, UnavailableError("lost a peer"), "");
        }
      });
      return;
    }
  }
  Advance(worker);
}

// To the next step, or the end.
void Cluster::Advance(SimWorker& worker) {
  SimWorker::Run& run = *worker.run;
  if (run.step == options_.steps) {
    return EndRun(worker, RunEnded::How::kFinished, Status::Ok(), "");
  }
  if (run.group_stop) {
    return EndRun(worker, RunEnded::How::kStopped, Status::Ok(), "");
  }
  ++run.step;
  run.voted = run.learned = false;
  OnWorkerAfter(worker.key, 20 * worker.slowdown, 60 * worker.slowdown,
                [this, number = run.number](SimWorker& w) {
                  if (w.run && w.run->number == number) {
                    Vote(w);
                  }
                });
}

void Cluster::Vote(SimWorker& worker) {
  SimWorker::Run& run = *worker.run;
  run.voted = true;
  OnWorkerAfter(worker.key, kOperationTimeoutMs, kOperationTimeoutMs + 200,
                [this, number = run.number, step = run.step](SimWorker& w) {
                  if (!w.run || w.run->number != number || w.run->step != step || w.run->learned) {
                    return;
                  }
                  const Ballot& late = ballots_[{w.run->generation, step}];
                  for (const std::string& key : w.run->members) {
                    if (late.voted.count(key) == 0) {
                      return FailRun(w, DeadlineExceededError("waited for {}", NameOf(key)),
                                     NameOf(key));
                    }
                  }
                  FailRun(w, DeadlineExceededError("waited"), "");
                });
  if (Unreachable(worker) && run.members.size() > 1) {
    return;  // Its vote does not get out.
  }
  Ballot& ballot = ballots_[{run.generation, run.step}];
  ballot.voted.insert(worker.key);
  ballot.stop = ballot.stop || run.stop;
  if (ballot.voted.size() == run.members.size() && !ballot.decided) {
    ballot.decided = true;
    Decide(run.generation, run.step);
  }
}

// All have voted. A member that died after its vote may have taken its part of the exchange with
// it: then each of the others gets the norm or not.
void Cluster::Decide(int64_t generation, int64_t step) {
  const Ballot& ballot = ballots_.at({generation, step});
  bool crippled = !options_.control_faults_only && random_.Below(80) == 0;
  for (const std::string& key : ballot.voted) {
    const SimWorker* member = Worker(key);
    crippled = crippled || !member->alive || member->exited || Unreachable(*member);
  }
  if (crippled) {
    ++result_.probes["vote crippled"];
  }
  std::set<std::string> blind;
  for (const std::string& key : ballot.voted) {
    if (crippled && random_.Below(2) == 0) {
      blind.insert(key);
      continue;
    }
    const double slowest = crippled ? 200 : 5;
    OnWorkerAfter(key, 0.1, 3, [this, generation, step, slowest, stop = ballot.stop](SimWorker& w) {
      if (!w.run || w.run->generation != generation || w.run->step != step ||
          (Unreachable(w) && w.run->members.size() > 1)) {
        return;
      }
      w.run->learned = true;
      w.run->group_stop = stop;
      OnWorkerAfter(w.key, 0, slowest, [this, number = w.run->number, step](SimWorker& x) {
        if (x.run && x.run->number == number && x.run->step == step && x.run->learned) {
          Apply(x);
        }
      });
    });
  }
  for (const std::string& key : blind) {  // The exchange broke here although the peer may live.
    OnWorkerAfter(key, 1, 20, [this, generation, step](SimWorker& w) {
      if (w.run && w.run->generation == generation && w.run->step == step && !w.run->learned) {
        FailRun(w, UnavailableError("the exchange broke"), "");
      }
    });
  }
}

// A worker that was given up may still complete a step for itself: nobody sees it. One that counts
// may not.
void Cluster::CheckFence(const SimWorker& worker) {
  if (worker.run->generation < newest_go_ && stored_.held) {
    const auto member = stored_.held->members.find(worker.member->name());
    if (member != stored_.held->members.end() && member->second == worker.incarnation) {
      Fail(fmt::format("{} applies a step of generation {} after {} began", worker.key,
                       worker.run->generation, newest_go_));
    }
  }
}

void Cluster::Apply(SimWorker& worker) {
  SimWorker::Run& run = *worker.run;
  CheckFence(worker);
  ApplyStep(worker, run.step);
  const int64_t number = run.number;
  if (options_.control_faults_only && now_ - last_applied_ > std::chrono::seconds(1) &&
      run.step > start_of_generation_.at(run.generation) + 1) {
    Fail(fmt::format("training stood still for {:.2f} s before step {}",
                     Seconds(now_ - last_applied_), run.step));
  }
  last_applied_ = now_;
  TellMember(worker, StepApplied{Record(run.step, run.generation), 0.2 * worker.slowdown, 0.2});
  if (!worker.run || worker.run->number != number) {
    return;
  }
  TakeSnapshot(worker);
  if (ValidationDue(job_.policy, run.step)) {
    Validate(worker);
  }
  if (CheckpointDue(job_.policy, run.step)) {
    Save(worker);
  }
  Advance(worker);
}

void Cluster::Validate(SimWorker& worker) {
  const int64_t generation = worker.run->generation;
  const int64_t step = worker.run->step;
  TellMember(worker, Validated{generation, step, SimValidation(step, generation)});
}

void Cluster::Save(SimWorker& worker) {
  wire::CheckpointPart part;
  part.set_step(worker.run->step);
  part.set_generation(worker.run->generation);
  std::string text;
  for (const auto& [parameter, value] : worker.held) {
    text += fmt::format("{} {} {} ", parameter, value.step, value.chain);
  }
  part.set_part(text);
  if (worker.run->step == options_.steps) {
    return TellMember(worker, Saved{part});  // RunEnded comes after it.
  }
  OnWorkerAfter(worker.key, 5, 150, [this, part](SimWorker& w) { TellMember(w, Saved{part}); });
}

void Cluster::FailRun(SimWorker& worker, const Status& status, const std::string& peer) {
  // What was learned may be applied before the failure is noticed, or only reported.
  if (worker.run->learned && random_.Below(2) == 0) {
    ApplyStep(worker, worker.run->step);
    const wire::StepRecord record = Record(worker.run->step, worker.run->generation);
    worker.run->voted = worker.run->learned = false;
    ++worker.run->step;  // The next one is in flight, its vote not cast.
    TellMember(worker, StepApplied{record, 0.2 * worker.slowdown, 0.2});
    if (!worker.run) {
      return;
    }
  }
  EndRun(worker, RunEnded::How::kFailed, status, peer);
}

void Cluster::EndRun(SimWorker& worker,
                     RunEnded::How how,
                     const Status& status,
                     const std::string& peer) {
  const SimWorker::Run run = *worker.run;
  RunEnded ended;
  ended.generation = run.generation;
  ended.how = how;
  ended.status = status;
  ended.peer = peer;
  ended.applied_step = run.step;
  if (how == RunEnded::How::kFailed) {
    ended.applied_step = run.step - 1;
    ended.voted = run.voted;
    worker.kept_vote = run.voted ? run.step : 0;
    if (run.learned) {
      ended.voted_record = Record(run.step, run.generation);
      ++result_.probes["norm known, not applied"];
    }
  }
  if (options_.planted == Planted::kIgnoreFence && how == RunEnded::How::kFailed && run.voted &&
      !run.learned) {
    // The abort is reported, yet the exchange goes on behind it.
    OnWorkerAfter(worker.key, 1, 300, [this, step = run.step](SimWorker& w) {
      if (!w.held.empty() && w.held.begin()->second.step == step - 1) {
        ApplyStep(w, step);
      }
    });
  }
  worker.run.reset();
  TellMember(worker, ended);
}

// ---- Peers that die ----

void Cluster::PeerVanished(const std::string& key, bool silent) {
  if (silent) {
    return;  // Only time-outs tell.
  }
  const std::string name = NameOf(key);
  for (auto& [other, worker] : workers_) {
    if (other == key || !worker->run ||
        std::find(worker->run->members.begin(), worker->run->members.end(), key) ==
            worker->run->members.end()) {
      continue;
    }
    const bool neighbour = random_.Below(3) > 0;
    OnWorkerAfter(other, neighbour ? 1 : 5, neighbour ? 15 : 40,
                  [this, number = worker->run->number, name, neighbour](SimWorker& w) {
                    if (!w.run || w.run->number != number) {
                      return;
                    }
                    // Who is no neighbour sees another one abort, and takes that one for the
                    // culprit.
                    std::string blamed = name;
                    if (!neighbour) {
                      blamed = NameOf(w.run->members[random_.Below(w.run->members.size())]);
                      ++result_.probes["wrong one blamed"];
                    }
                    if (random_.Below(2) == 0) {
                      TellMember(w, PeerSeenLost{w.run->generation, blamed, "reset"});
                    }
                    if (w.run && w.run->number == number) {
                      FailRun(w, UnavailableError("lost {}", blamed), blamed);
                    }
                  });
  }
}

}  // namespace heddle::elastic
