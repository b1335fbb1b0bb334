// What the coordinator tells workers, and how generations follow each other.
#include "tests/elastic/simulation/ledger/ledger.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

void Ledger::BeginEra(int64_t generation) {
  floor_ = generation;
  newest_go_ = newest_halt_ = 0;
  somebody_failed_ = false;
  checkpoints_changed_ = true;
  prepared_.clear();
  start_sent_.clear();
  run_after_.clear();
  last_snapshot_.clear();
  in_force_.clear();
  refused_.clear();
  probed_.clear();
  begun_.clear();
  if (generation > 0) {
    begun_[generation] = 0;
  }
}

void Ledger::CheckSent(const CoordinatorProcess& from, const wire::ToWorker& message) {
  if (from.fenced()) {
    return CheckSentByFormer(*from.fenced(), message);
  }
  int64_t generation = 0;
  if (message.has_measure_links()) {
    CheckLinkRequest(message.measure_links());
  } else if (message.has_halt()) {
    generation = message.halt().generation();
    newest_halt_ = std::max(newest_halt_, generation);
  } else if (message.has_prepare()) {
    generation = message.prepare().generation();
    CheckPrepare(message.prepare());
  } else if (message.has_start()) {
    CheckSource(message.start());
  } else if (message.has_go()) {
    generation = message.go().generation();
    CheckGo(generation);
  } else if (message.has_alive()) {
    CheckAcknowledged(message.alive().known_step());
  }
  const auto& stored = cluster_.store.state();
  const int64_t durable = stored ? stored->generation_counter : 0;
  if (generation > durable) {
    cluster_.world.Fail(
        fmt::format("generation {} was sent and only {} is durable", generation, durable));
  }
  if (generation > 0 && generation <= floor_) {
    cluster_.world.Fail(
        fmt::format("generation {} was sent and storage knows {}", generation, floor_));
  }
}

// What it had stored it may still say. That counts only where its successor has not gone on.
void Ledger::CheckSentByFormer(const DurableState& stored, const wire::ToWorker& message) {
  int64_t generation = 0;
  if (message.has_halt()) {
    generation = message.halt().generation();
  } else if (message.has_prepare()) {
    generation = message.prepare().generation();
    CheckPrepare(message.prepare());
  } else if (message.has_start()) {
    generation = message.start().generation();
  } else if (message.has_go()) {
    generation = message.go().generation();
    if (!stored.held || stored.held->number != generation) {
      cluster_.world.Fail(fmt::format("a former coordinator begins generation {}", generation));
    } else if (generation > newest_go_) {
      cluster_.world.Count("begun by a former coordinator");
      NoteGo(generation);
    }
  } else if (message.has_alive() && message.alive().known_step() > stored.known_step) {
    cluster_.world.Fail(fmt::format("a former coordinator acknowledged step {} and stored {}",
                                    message.alive().known_step(), stored.known_step));
  }
  if (generation > stored.generation_counter) {
    cluster_.world.Fail(fmt::format("a former coordinator sent generation {} and stored {}",
                                    generation, stored.generation_counter));
  }
}

void Ledger::CheckLinkRequest(const wire::MeasureLinks& request) {
  const std::string pair = request.members(0).name() + " " + request.members(1).name();
  const auto [found, is_new] = probed_.emplace(request.request(), pair);
  if (found->second != pair) {
    cluster_.world.Fail(
        fmt::format("request {} measures {} and {}", request.request(), found->second, pair));
  }
  if (is_new && std::next(found) != probed_.end()) {
    cluster_.world.Fail(
        fmt::format("request {} after {}", request.request(), probed_.rbegin()->first));
  }
}

void Ledger::CheckPrepare(const wire::Prepare& prepare) {
  const int64_t generation = prepare.generation();
  const auto [found, is_new] = prepared_.emplace(generation, prepare);
  if (!is_new && found->second.SerializeAsString() != prepare.SerializeAsString()) {
    cluster_.world.Fail(fmt::format("generation {} is prepared in two ways", generation));
  }
  if (!prepare.plan_json().starts_with(std::to_string(generation) + " ")) {
    cluster_.world.Fail(fmt::format("generation {} is prepared with the plan of another: {}",
                                    generation, prepare.plan_json()));
  }
  if (prepare.links().places_size() < prepare.members_size()) {
    cluster_.world.Fail(
        fmt::format("generation {} tells the links of some of its members", generation));
  }
  CheckHolders(prepare);
}

void Ledger::CheckGo(int64_t generation) {
  if (generation < newest_go_) {
    cluster_.world.Fail(fmt::format("Go for generation {} after {}", generation, newest_go_));
  }
  if (generation > newest_go_) {
    cluster_.faults.NoteGo(prepared_.at(generation), start_sent_.at(generation));
  }
  NoteGo(generation);
  const auto& stored = cluster_.store.state();
  if (!stored || !stored->held || stored->held->number != generation) {
    cluster_.world.Fail("Go before its generation was durable");
  }
  cluster_.decisions.CheckBegun(generation);
  cluster_.alterations.CheckBegun(prepared_.at(generation));
}

void Ledger::NoteGo(int64_t generation) {
  const int64_t start = start_sent_.at(generation);
  for (auto& [older, last_step] : last_snapshot_) {
    last_step = older < generation ? std::min(last_step, start) : last_step;
  }
  last_snapshot_.emplace(generation, INT64_MAX);
  begun_.emplace(generation, start);
  cluster_.provenance.NoteGo(prepared_.at(generation), start);
  cluster_.log.CheckResumption(start);
  checkpoints_changed_ = true;
  somebody_failed_ = somebody_failed_ && generation == newest_go_;
  newest_go_ = generation;
}

// Workers forget the records of steps that are known.
void Ledger::CheckAcknowledged(int64_t known_step) {
  const auto& stored = cluster_.store.state();
  if (known_step > (stored ? stored->known_step : 0)) {
    cluster_.world.Fail(
        fmt::format("step {} was acknowledged before that was durable", known_step));
  }
}

void Ledger::NoteHeard(const wire::FromWorker& message) {
  somebody_failed_ = somebody_failed_ ||
                     (message.has_peer_lost() && message.peer_lost().generation() == newest_go_);
}

bool Ledger::Counts(int64_t generation, int64_t step) const {
  const auto began = begun_.find(generation);
  return began != begun_.end() && std::all_of(began, begun_.end(), [&](const auto& other) {
           return other.first == generation ? step >= other.second : step <= other.second;
         });
}

void Ledger::NoteRun(int64_t generation, int64_t applied_step) {
  const auto [start, is_new] = run_after_.emplace(generation, applied_step);
  if (!is_new && start->second != applied_step) {
    cluster_.world.Fail(fmt::format("generation {} starts from steps {} and {}", generation,
                                    start->second, applied_step));
  }
}

void Ledger::CheckApplies(const SimWorker& worker) {
  const auto& stored = cluster_.store.state();
  const int64_t generation = worker.trainer.run->generation;
  if (generation >= newest_go_ || !stored || !stored->held) {
    return;
  }
  const auto& members = stored->held->members;
  const auto member = members.find(worker.member->name());
  if (member != members.end() && member->second == worker.incarnation) {
    cluster_.world.Fail(fmt::format("{} applies a step of generation {} after {} began", worker.key,
                                    generation, newest_go_));
  }
}

}  // namespace heddle::elastic
