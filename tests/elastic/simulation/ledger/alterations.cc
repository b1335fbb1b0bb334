#include "tests/elastic/simulation/ledger/alterations.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/hash.h"
#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// Of a JSON list, what is between its brackets.
std::vector<std::string> ListIn(const LogEvent& event, const char* field) {
  std::vector<std::string> out;
  std::istringstream text(std::get<RawJson>(*event.Find(field)).text);
  for (std::string item; std::getline(text, item, ',');) {
    std::erase_if(item, [](char c) { return c == '[' || c == ']' || c == '"' || c == ' '; });
    if (!item.empty()) {
      out.push_back(item);
    }
  }
  return out;
}

}  // namespace

wire::Certificate SimCertificate(const SimState& state, int64_t step) {
  wire::Certificate certificate;
  certificate.set_step(step);
  certificate.set_identity(static_cast<uint64_t>(step));
  for (const auto& [parameter, value] : state) {
    certificate.add_parameters(parameter);
    certificate.add_digests(Hash64(fmt::format("{} {}", value.step, value.chain)));
  }
  return certificate;
}

int32_t Alterations::Alter(SimWorker& worker, Random& random) {
  SimState& held = worker.trainer.held;
  if (held.empty()) {
    return -1;
  }
  auto chosen = std::next(held.begin(), static_cast<std::ptrdiff_t>(random.Below(held.size())));
  chosen->second.chain ^= uint64_t{1} << random.Below(64);
  chosen->second.altered = ++newest_;
  steps_[newest_] = chosen->second.step;
  return chosen->first;
}

void Alterations::TakeDisagreement(const LogEvent& event) {
  const bool majority = std::get<std::string>(*event.Find("majority")) == "yes";
  cluster_.world.Count(majority ? "one altered replica found" : "altered replicas, no majority");
  const int64_t agreed = std::get<int64_t>(*event.Find("agreed_step"));
  for (const std::string& name : ListIn(event, "workers")) {
    const SimWorker* worker = cluster_.fleet.Named(name);
    if (worker == nullptr) {
      continue;
    }
    for (const std::string& parameter : ListIn(event, "parameters")) {
      for (const SimState* state : {&worker->trainer.held, &worker->trainer.staged}) {
        const auto found = state->find(std::stoi(parameter));
        if (found != state->end() && found->second.altered > 0 &&
            steps_.at(found->second.altered) > agreed) {
          unstored_.insert(found->second.altered);
        }
      }
    }
  }
}

void Alterations::NoteStored() {
  if (!unstored_.empty()) {
    cluster_.ledger.NoteCheckpoints();
  }
  known_.merge(unstored_);
  unstored_.clear();
}

void Alterations::CheckStaged(const SimWorker& worker, int64_t generation, int32_t parameter) {
  World& world = cluster_.world;
  const SimParameter& value = worker.trainer.staged.at(parameter);
  const int64_t step = worker.trainer.staged_step;
  if (value.step != step ||
      (value.altered == 0 && value.chain != cluster_.undisturbed.Chain(step))) {
    world.Fail(
        fmt::format("generation {} starts from step {} and {} got parameter {} after step {}",
                    generation, step, worker.key, parameter, value.step));
  }
  if (IsKnown(value)) {
    world.Fail(fmt::format("generation {} starts with parameter {} at {} as it was found altered",
                           generation, parameter, worker.key));
  }
  if (value.altered > 0) {
    world.Count("an altered copy is moved, nobody knows");
  }
}

void Alterations::CheckBegun(const wire::Prepare& prepare) {
  std::map<int32_t, uint64_t> chains;
  for (const wire::Member& member : prepare.members()) {
    const SimWorker* worker = cluster_.fleet.Find(member.address());
    if (worker == nullptr || worker->trainer.staged_generation != prepare.generation()) {
      continue;  // It has begun, or is lost.
    }
    for (const auto& [parameter, value] : worker->trainer.staged) {
      const auto [found, is_new] = chains.emplace(parameter, value.chain);
      if (found->second != value.chain) {
        cluster_.world.Fail(fmt::format("generation {} begins with unlike replicas of {}",
                                        prepare.generation(), parameter));
      }
    }
  }
}

}  // namespace heddle::elastic
