/// \file
/// A plan of the simulated planner, and its text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle::elastic {

inline constexpr int32_t kSimParameters = 6;

/// Pairs of a worker's name and the indices of its parameters, by rank.
using SimPlan = std::vector<std::pair<std::string, std::vector<int32_t>>>;
std::string EncodeSimPlan(int64_t generation, const SimPlan& plan);
SimPlan DecodeSimPlan(const std::string& text);

}  // namespace heddle::elastic
