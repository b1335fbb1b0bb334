#include "engine/program/lowering/joint_sums.h"

#include <map>
#include <utility>

namespace heddle::program {

SingleSum SumOf(const GraphAnalysis& analysis, graph::ParameterId parameter, int64_t bytes) {
  SingleSum sum{.bytes = bytes};
  for (const GradientUse& use : analysis.uses[static_cast<size_t>(parameter)]) {
    sum.segments.push_back(use.segment);
  }
  return sum;
}

std::vector<std::vector<size_t>> JoinSums(std::span<const SingleSum> sums) {
  struct Open {
    size_t collective = 0;
    int64_t bytes = 0;
  };
  std::map<std::pair<std::vector<int>, std::vector<int>>, Open> open;
  std::vector<std::vector<size_t>> collectives;
  for (size_t i = 0; i < sums.size(); ++i) {
    const SingleSum& sum = sums[i];
    if (sum.alone || sum.bytes > kMostJoinedBytes) {
      collectives.push_back({i});
      continue;
    }
    const auto [found, is_new] = open.try_emplace({sum.segments, sum.holders});
    Open& last = found->second;
    if (is_new || last.bytes + sum.bytes > kMostJointBytes) {
      last = {.collective = collectives.size()};
      collectives.emplace_back();
    }
    last.bytes += sum.bytes;
    collectives[last.collective].push_back(i);
  }
  return collectives;
}

}  // namespace heddle::program
