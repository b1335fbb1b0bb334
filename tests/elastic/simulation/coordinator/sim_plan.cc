#include "tests/elastic/simulation/coordinator/sim_plan.h"

#include <sstream>

namespace heddle::elastic {

std::string EncodeSimPlan(int64_t generation, const SimPlan& plan) {
  std::string text = std::to_string(generation);
  for (const auto& [name, parameters] : plan) {
    text += " " + name + ":";
    for (const int32_t parameter : parameters) {
      text += std::to_string(parameter) + ",";
    }
  }
  return text;
}

SimPlan DecodeSimPlan(const std::string& text) {
  SimPlan plan;
  std::istringstream words(text);
  std::string word;
  words >> word;
  while (words >> word) {
    const size_t colon = word.find(':');
    std::vector<int32_t> parameters;
    for (size_t at = colon + 1; at < word.size(); at += 2) {
      parameters.push_back(word[at] - '0');
    }
    plan.emplace_back(word.substr(0, colon), parameters);
  }
  return plan;
}

}  // namespace heddle::elastic
