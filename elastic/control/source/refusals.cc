#include "elastic/control/source/refusals.h"

#include <algorithm>

namespace heddle::elastic {
void Refusals::Add(const RefusedState& refused) {
  if (std::find(refused_.begin(), refused_.end(), refused) == refused_.end()) {
    refused_.push_back(refused);
  }
}

bool Refusals::Has(const std::string& holder, int64_t generation, int64_t step) const {
  return std::any_of(refused_.begin(), refused_.end(), [&](const RefusedState& refused) {
    return refused.holder == holder && refused.generation == generation && refused.step == step;
  });
}

bool Refusals::Disagreed(int64_t generation) const {
  return std::any_of(refused_.begin(), refused_.end(), [&](const RefusedState& refused) {
    return refused.generation == generation && refused.step == RefusedState::kTensors &&
           refused.receiver.empty();
  });
}

std::set<std::string> Refusals::HoldersRefusedBy(const std::string& receiver) const {
  std::set<std::string> holders;
  for (const RefusedState& refused : refused_) {
    if (refused.receiver == receiver && refused.holder != receiver) {
      holders.insert(refused.holder);
    }
  }
  return holders;
}

void Refusals::Forgive(const std::string& receiver) {
  std::erase_if(refused_, [&](const RefusedState& refused) {
    return refused.receiver == receiver && refused.holder != receiver;
  });
}

void Refusals::BeginGeneration(const std::map<int64_t, SnapshotSource>& snapshots) {
  std::erase_if(refused_, [&](const RefusedState& refused) {
    return refused.step == RefusedState::kTensors || snapshots.count(refused.generation) == 0;
  });
  for (RefusedState& refused : refused_) {
    refused.receiver.clear();
  }
}

}  // namespace heddle::elastic
