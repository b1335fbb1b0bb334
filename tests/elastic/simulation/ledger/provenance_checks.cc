#include "tests/elastic/simulation/ledger/provenance_checks.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

constexpr int64_t kAllSteps = std::numeric_limits<int64_t>::max();

const char* GuaranteeOf(const std::set<int>& kinds) {
  return kinds.size() <= 1 ? "plan-invariant" : "per-plan";
}

}  // namespace

// Backwards: what a generation computed counts up to where the next one that counts began.
std::set<int> ProvenanceChecks::KindsUntil(int64_t generation, int64_t step) const {
  std::set<int> kinds;
  int64_t end = step;
  for (auto next = begun_.upper_bound(generation); next != begun_.begin();) {
    const Begun& begun = std::prev(next--)->second;
    if (begun.step < end) {
      kinds.insert(begun.kinds.begin(), begun.kinds.end());
      end = begun.step;
    }
  }
  if (end > 0) {
    kinds.insert(inherited_.begin(), inherited_.end());
  }
  return kinds;
}

void ProvenanceChecks::NoteGo(const wire::Prepare& prepare, int64_t step) {
  const int64_t before = begun_.empty() ? 0 : begun_.rbegin()->first;
  Begun begun{.step = step, .kinds = {}};
  for (const wire::Member& member : prepare.members()) {
    begun.kinds.insert(cluster_.fleet.at(member.address()).kind);
  }
  if (!begun_.emplace(prepare.generation(), std::move(begun)).second) {
    return;
  }
  World& world = cluster_.world;
  const bool was_alike = before == 0 || KindsUntil(before, kAllSteps).size() <= 1;
  const bool alike = KindsUntil(prepare.generation(), kAllSteps).size() <= 1;
  if (was_alike != alike) {
    world.Count(alike ? "unlike steps undone" : "unlike steps computed");
  }
  if (!alike && world.options().demands_alike) {
    world.Fail(fmt::format("generation {} has unlike workers, and the job demands alike ones",
                           prepare.generation()));
  }
}

void ProvenanceChecks::CheckStatus(const wire::JobStatus& status) {
  if (!begun_.contains(status.generation())) {
    return;  // None is in force, or Go was not sent yet.
  }
  const std::string expected = GuaranteeOf(KindsUntil(status.generation(), kAllSteps));
  if (status.guarantee() != expected ||
      status.guarantee_reason().empty() != (expected == "plan-invariant")) {
    cluster_.world.Fail(fmt::format("generation {} is {}, and is shown as {}: '{}'",
                                    status.generation(), expected, status.guarantee(),
                                    status.guarantee_reason()));
  }
}

void ProvenanceChecks::CheckCommit(const CommitCheckpoint& commit) {
  const std::string expected = GuaranteeOf(KindsUntil(commit.generation, commit.step));
  if (NameOf(commit.facts.provenance.guarantee) != expected) {
    cluster_.world.Fail(fmt::format("the checkpoint of step {}, generation {}, is {}, and says {}",
                                    commit.step, commit.generation, expected,
                                    NameOf(commit.facts.provenance.guarantee)));
  }
}

// What the checkpoint says was checked when it was committed.
void ProvenanceChecks::BeginEra() {
  begun_.clear();
  inherited_.clear();
  const auto found = cluster_.storage.FindProvenance();
  if (found && found->guarantee == Guarantee::kPlanInvariant) {
    inherited_ = {std::stoi(found->arithmetic.at("kind"))};
  } else if (found) {
    inherited_ = {0, 1};
  }
}

}  // namespace heddle::elastic
