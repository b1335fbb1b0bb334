#include "tests/elastic/simulation/ledger/decision_checks.h"

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

void DecisionChecks::CheckBegun(int64_t generation) {
  if (durable_[generation] != 1) {
    cluster_.world.Fail(
        fmt::format("generation {} has {} decisions", generation, durable_[generation]));
  }
}

void DecisionChecks::BeginEra(int64_t generation) {
  for (auto* decisions : {&logged_, &durable_}) {
    decisions->erase(decisions->upper_bound(generation), decisions->end());
  }
}

// One that is durable may have begun for nobody.
bool DecisionChecks::Follows(int64_t generation) const {
  const auto& stored = cluster_.store.state();
  return generation == 0 || generation == cluster_.ledger.newest_go() ||
         (stored && stored->held && generation == stored->held->number);
}

void DecisionChecks::Take(const LogEvent& event) {
  World& world = cluster_.world;
  const auto text = [&](const char* field) { return std::get<std::string>(*event.Find(field)); };
  const auto json = [&](const char* field) { return std::get<RawJson>(*event.Find(field)).text; };
  const int64_t generation = std::get<int64_t>(*event.Find("generation"));
  ++logged_[generation];
  world.Count("decided for " + text("cause"));
  const int64_t follows = std::get<int64_t>(*event.Find("follows"));
  if (!Follows(follows)) {
    world.Fail(fmt::format("generation {} follows {}, and its decision says {}", generation,
                           cluster_.ledger.newest_go(), follows));
  }
  if (text("cause").empty() || text("reason").empty() || json("evidence") == "[]") {
    world.Fail(fmt::format("the decision of generation {} has no cause, reason or evidence: {}",
                           generation, FormatLogEvent(event, 0)));
  }
  if (json("evidence").find("and none did anything for") != std::string::npos) {
    world.Count("waits in a circle");
  }
  if (json("alternatives").find("\"what\": \"" + text("choice") + "\"") == std::string::npos) {
    world.Fail(fmt::format("generation {} chose what was no alternative: {}", generation,
                           FormatLogEvent(event, 0)));
  }
  const bool recovers = text("cause") == "loss" || text("cause") == "failure" ||
                        text("cause") == "unreadable" || text("cause") == "restart" ||
                        text("cause") == "disagreement";
  if (recovers ? text("choice") != source_
               : text("cause") != "form" && text("choice") != "replan") {
    world.Fail(fmt::format("generation {} came from {}, and its decision says {}", generation,
                           source_, text("choice")));
  }
}

}  // namespace heddle::elastic
