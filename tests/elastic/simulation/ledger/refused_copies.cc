#include "tests/elastic/simulation/ledger/refused_copies.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {

void RefusedCopies::Refuse(const Copy& copy, const std::string& receiver) {
  cluster_.world.Count(copy.step < 0 ? "tensors of one refused" : "parts of one refused");
  unstored_[copy] = receiver;
  ever_.insert(copy);
}

void RefusedCopies::Forgive(const std::string& receiver) {
  cluster_.world.Count("who refuses all is lost");
  for (auto* copies : {&unstored_, &refused_}) {
    std::erase_if(*copies, [&](const auto& copy) {
      return copy.second == receiver && copy.first.holder != receiver;
    });
  }
}

void RefusedCopies::BeginEra() {
  unstored_.clear();
  refused_.clear();
  ever_.clear();
}

void RefusedCopies::NoteStored() {
  refused_.merge(unstored_);
  unstored_.clear();
}

void RefusedCopies::Check(const wire::Start& start) {
  const auto check = [&](const Copy& copy) {
    if (refused_.count(copy) > 0) {
      cluster_.world.Fail(fmt::format("generation {} takes state from {}, which was refused",
                                      start.generation(), copy.holder));
    }
  };
  Copy state{.generation = start.replicas().generation(), .step = start.applied_step()};
  if (start.has_held()) {
    state = {.generation = start.held().generation(), .step = -1};
  }
  for (const std::string& holder : start.held().workers()) {
    check({state.generation, state.step, holder});
  }
  for (const auto& holder : start.replicas().holders()) {
    check({state.generation, state.step, holder.worker()});
  }
  if (std::any_of(refused_.begin(), refused_.end(), [&](const auto& copy) {
        return copy.first.generation == state.generation && copy.first.step == state.step;
      })) {
    cluster_.world.Count("another holder taken");
  }
}

}  // namespace heddle::elastic
