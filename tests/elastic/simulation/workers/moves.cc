#include "tests/elastic/simulation/workers/moves.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

// ---- Links ----

// A peer that is not there costs the bound of each transport; one that stands still costs more.
void Moves::BeginProbe(SimWorker& worker, const wire::MeasureLinks& request) {
  const bool fails = cluster_.world.Happens(30);
  const auto answer = [this, request, fails](SimWorker& w) {
    const std::string& other = request.members(1 - request.rank()).address();
    const SimWorker* peer = cluster_.fleet.Find(other);
    const bool joined = !fails && peer != nullptr && peer->runs() &&
                        !cluster_.fleet.Unreachable(*peer) && !cluster_.fleet.Unreachable(w) &&
                        cluster_.links.Joins(w.key, other);
    LinksProbed probed;
    probed.answer.set_request(request.request());
    for (const std::string& transport : request.transports()) {
      wire::LinksMeasured::Link& link = *probed.answer.add_links();
      link.set_transport(transport);
      if (joined) {
        link.set_latency_seconds(1e-5);
        const bool kept = request.machine_rates_size() > 0;  // From before it became slow.
        link.set_bytes_per_second(1e9 /
                                  (kept ? 1 : std::max(w.link_slowdown, peer->link_slowdown)));
      } else {
        link.set_error("deadline passed");
      }
    }
    cluster_.members.Tell(w, probed);
  };
  const bool slow = cluster_.world.Happens(30);
  cluster_.fleet.After(worker.key, 20, slow ? 4000 : 120, answer);
}

// ---- Waiting for the others ----

void Moves::Begin(SimWorker& worker, const MoveState& move) {
  World& world = cluster_.world;
  SimTrainer& trainer = worker.trainer;
  if (trainer.run) {
    world.Fail(worker.key + " moves while it runs");
  }
  if (worker.secret != SecretOf(worker.era)) {
    world.Fail(worker.key + " takes part, and the others do not know its secret");
  }
  if (move.start.move_generation() < trainer.fence) {
    world.Fail(worker.key + " moves below its fence");
  }
  trainer.moving = move;
  trainer.move_number = world.NextNumber();
  const Time deadline = world.now() + Milliseconds(OperationTimeoutMs(world.options()));
  cluster_.fleet.After(worker.key, 5, 100,
                       [this, number = trainer.move_number, deadline](SimWorker& w) {
                         Look(w, number, deadline, false);
                       });
}

void Moves::Look(SimWorker& worker, int64_t number, Time deadline, bool moved) {
  const SimTrainer& trainer = worker.trainer;
  if (!trainer.moving || trainer.move_number != number || trainer.stuck) {
    return;
  }
  if (!Await(worker, moved ? Time::max() : deadline, moved)) {
    // Each looks at all: the more there are, the more rarely.
    const double pace = 1 + static_cast<double>(trainer.moving->start.move_members_size() / 8);
    cluster_.fleet.After(
        worker.key, 3 * pace, 12 * pace,
        [this, number, deadline, moved](SimWorker& w) { Look(w, number, deadline, moved); });
    return;
  }
  if (!trainer.moving || trainer.move_number != number) {
    return;  // It has failed.
  }
  if (moved) {
    return Complete(worker);
  }
  cluster_.members.WorkFor(worker.key, 0, 2, [this, number, deadline](SimWorker& w) {
    if (w.trainer.moving && w.trainer.move_number == number) {
      w.trainer.moved_generation = w.trainer.moving->start.generation();
      Look(w, number, deadline, true);
    }
  });
}

// All has come: whether it is what was sent.
void Moves::Complete(SimWorker& worker) {
  World& world = cluster_.world;
  if (worker.trainer.fails) {
    return End(worker, OwnFault(), "");
  }
  const wire::Start& start = worker.trainer.moving->start;
  const bool damaged = start.has_replicas() && world.Happens(8);
  if (damaged && world.Happens(2) && HasParts(worker, start)) {
    world.Count("own part refused");
    return Refuse(worker, worker.member->name());
  }
  if (damaged ||
      (start.has_checkpoint_step() && cluster_.storage.IsDamaged(start.checkpoint_step()))) {
    return End(worker, DataLossError("a checksum differs"), "");
  }
  const std::string giver = GiverTo(worker);
  if (world.now() < worker.trainer.changes.until && !giver.empty()) {
    if (worker.trainer.changes.once) {
      worker.trainer.changes.until = Time();
    }
    if (world.options().planted != Planted::kTrustMoves) {
      return Refuse(worker, giver);
    }
    worker.trainer.changes.taken = true;
  }
  End(worker, Status::Ok(), "");
}

bool Moves::HasParts(const SimWorker& worker, const wire::Start& start) {
  const auto& holders = start.replicas().holders();
  return std::any_of(holders.begin(), holders.end(),
                     [&](const auto& holder) { return holder.worker() == worker.member->name(); });
}

// Somebody else whose memory the worker takes some of its state from; empty: there is none.
std::string Moves::GiverTo(const SimWorker& worker) {
  const MoveState& move = *worker.trainer.moving;
  const std::string& own = worker.member->name();
  const auto& holders = move.start.held().workers();
  const bool is_valid = std::find(holders.begin(), holders.end(), own) != holders.end();
  for (const auto& [name, parameters] : DecodeSimPlan(move.prepared.plan_json())) {
    for (const int32_t parameter : parameters) {
      if (name != own || (is_valid && worker.trainer.held.count(parameter) > 0)) {
        continue;
      }
      for (const std::string& holder : holders) {
        const SimWorker* other = cluster_.fleet.Named(holder, worker.era);
        if (holder != own && other != nullptr && other->trainer.held.count(parameter) > 0) {
          return holder;
        }
      }
      for (const auto& holder : move.start.replicas().holders()) {
        if (holder.worker() != own) {
          return holder.worker();
        }
      }
    }
  }
  return "";
}

void Moves::Refuse(SimWorker& worker, const std::string& holder) {
  const MoveState move = *std::exchange(worker.trainer.moving, std::nullopt);
  StateMoved moved;
  moved.generation = move.start.generation();
  moved.status = DataLossError("a hash differs");
  wire::Ready::Refused& refused = moved.refused.emplace_back();
  refused.set_holder(holder);
  refused.set_chunk("some of it");
  refused.set_chunks(1);
  cluster_.members.Tell(worker, moved);
}

bool Moves::Await(SimWorker& worker, Time deadline, bool all_have_moved) {
  SimTrainer& trainer = worker.trainer;
  const wire::Start& start = trainer.moving->start;
  const int64_t generation = start.generation();
  std::string missing;
  for (const wire::Member& member : start.move_members()) {
    const SimWorker* peer = cluster_.fleet.Find(member.address());
    if (peer == nullptr || !peer->runs() ||
        (member.address() != worker.key && !cluster_.links.Joins(worker.key, member.address()))) {
      trainer.waits.End();
      End(worker, UnavailableError("lost {}", member.name()), member.name());
      return true;
    }
    const SimTrainer& other = peer->trainer;
    const bool staged = other.staged_generation == generation;
    const bool there =
        staged || (all_have_moved ? other.moved_generation == generation
                                  : other.moving && other.moving->start.generation() == generation);
    if (!there || cluster_.fleet.Unreachable(*peer) || peer->stopped_until) {
      missing = member.name();
    }
  }
  trainer.waits.End();
  if (!missing.empty()) {
    trainer.waits.Begin(missing, start.move_generation());
  }
  if (!missing.empty() && cluster_.world.now() >= deadline) {
    trainer.waits.End();
    End(worker, DeadlineExceededError("waited for {}", missing), missing);
    return true;
  }
  return missing.empty();
}

// ---- The state itself ----

void Moves::End(SimWorker& worker, const Status& status, const std::string& peer) {
  const MoveState move = *std::exchange(worker.trainer.moving, std::nullopt);
  StateMoved moved;
  moved.generation = move.start.generation();
  moved.status = status;
  moved.peer = peer;
  if (status.ok()) {
    if (!StageAll(worker, move, moved)) {
      return;
    }
    worker.trainer.kept_vote = 0;
    World& world = cluster_.world;
    moved.seconds = world.options().tells_moves ? 0.01 + world.random().Uniform() : 0;
  }
  cluster_.members.Tell(worker, moved);
}

bool Moves::StageAll(SimWorker& worker, const MoveState& move, StateMoved& moved) {
  const wire::Start& start = move.start;
  SimTrainer& trainer = worker.trainer;
  trainer.staged.clear();
  trainer.staged_generation = start.generation();
  trainer.staged_step = start.applied_step();
  for (const auto& [name, parameters] : DecodeSimPlan(move.prepared.plan_json())) {
    if (name != worker.member->name()) {
      continue;
    }
    for (const int32_t parameter : parameters) {
      auto value = Read(worker, start, parameter, moved);
      if (!value) {
        return false;
      }
      value->chain += std::exchange(trainer.changes.taken, false) ? 1 : 0;
      trainer.staged[parameter] = *value;
      cluster_.alterations.CheckStaged(worker, start.generation(), parameter);
    }
  }
  SimState said = trainer.staged;
  if (cluster_.world.options().planted == Planted::kTrustDigests) {
    for (auto& [parameter, value] : said) {
      value.chain = cluster_.undisturbed.Chain(trainer.staged_step);
    }
  }
  moved.certificate = SimCertificate(said, trainer.staged_step);
  return true;
}

std::optional<SimParameter> Moves::Read(SimWorker& worker,
                                        const wire::Start& start,
                                        int32_t parameter,
                                        StateMoved& moved) {
  if (start.has_held()) {
    return ReadHeld(worker, start, parameter, moved);
  }
  if (start.has_replicas()) {
    moved.bytes["replica"] += 8;
    return cluster_.snapshots.Read(worker, start, parameter);
  }
  if (!start.initial() && !cluster_.storage.GenerationOf(start.checkpoint_step())) {
    cluster_.world.Fail(fmt::format("checkpoint {} does not exist", start.checkpoint_step()));
  }
  moved.bytes["checkpoint"] += 8;
  return start.initial() ? SimParameter{0, cluster_.undisturbed.Chain(0)}
                         : cluster_.storage.Read(start.checkpoint_step(), parameter);
}

std::optional<SimParameter> Moves::ReadHeld(SimWorker& worker,
                                            const wire::Start& start,
                                            int32_t parameter,
                                            StateMoved& moved) {
  const int64_t generation = start.held().generation();
  const SimWorker* source = nullptr;
  for (const std::string& holder : start.held().workers()) {
    const SimWorker* other = cluster_.fleet.Named(holder, worker.era);
    if (other != nullptr && other->trainer.held.count(parameter) > 0 &&
        (source == nullptr || other == &worker)) {
      source = other;
    }
  }
  if (source == nullptr) {
    cluster_.world.Fail(
        fmt::format("nobody holds parameter {} of generation {}", parameter, generation));
    return std::nullopt;
  }
  if (source->trainer.held_generation != generation) {
    cluster_.world.Fail(fmt::format("{} holds generation {}, not {}", source->key,
                                    source->trainer.held_generation, generation));
  }
  moved.bytes["memory"] += source == &worker ? 0 : 8;
  return source->trainer.held.at(parameter);
}

}  // namespace heddle::elastic
