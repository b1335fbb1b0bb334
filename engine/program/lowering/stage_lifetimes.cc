#include "engine/program/lowering/stage_lifetimes.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

namespace heddle::program {

using graph::ExchangeForm;

void AwaitExchanges(StageTemplate& stage) {
  if (stage.exchanges.empty()) {
    return;
  }
  std::set<int> read;
  for (const std::vector<StageStep>* steps : {&stage.forward, &stage.backward}) {
    for (const StageStep& step : *steps) {
      read.insert(step.inputs.begin(), step.inputs.end());
    }
  }
  std::set<int> pending;
  std::unordered_map<int, std::vector<StageContribution>> contributions;
  const auto await = [&](int value, std::vector<StageStep>& steps) {
    pending.erase(value);
    steps.push_back({.code = Code::kAwait, .inputs = {value}});
    steps.back().contributes = std::move(contributions[value]);
  };
  for (std::vector<StageStep>* steps : {&stage.forward, &stage.backward}) {
    std::vector<StageStep> placed;
    std::vector<int> unread;
    for (StageStep& step : *steps) {
      for (const int input : step.inputs) {
        if (pending.count(input) > 0) {
          await(input, placed);
        }
      }
      if (step.code == Code::kExchange && !step.outputs.empty()) {
        const ExchangeForm form = stage.exchanges[static_cast<size_t>(step.exchange)].form;
        const int value = step.outputs.front();
        if (form != ExchangeForm::kSlice && form != ExchangeForm::kFill) {
          pending.insert(value);
          contributions[value] = std::move(step.contributes);
          step.contributes.clear();
          if (read.count(value) == 0) {
            unread.push_back(value);
          }
        }
      }
      placed.push_back(std::move(step));
    }
    for (const int value : unread) {
      await(value, placed);
    }
    *steps = std::move(placed);
  }
}

void PlaceFrees(StageTemplate& stage) {
  std::vector<bool> seen(stage.values.size(), false);
  if (stage.loss >= 0) {
    seen[static_cast<size_t>(stage.loss)] = true;
  }
  for (const std::vector<StageStep>* steps : {&stage.forward, &stage.backward}) {
    for (const StageStep& step : *steps) {
      for (const StageContribution& one : step.contributes) {
        seen[static_cast<size_t>(one.value)] = true;
      }
    }
  }
  const auto place = [&](std::vector<StageStep>& steps) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      for (const std::vector<int>* list : {&step->inputs, &step->outputs}) {
        for (const int value : *list) {
          if (value >= 0 && !seen[static_cast<size_t>(value)]) {
            seen[static_cast<size_t>(value)] = true;
            step->frees.push_back(value);
          }
        }
      }
      std::sort(step->frees.begin(), step->frees.end());
    }
  };
  place(stage.backward);
  place(stage.forward);
}

}  // namespace heddle::program
