#include "engine/program/stages.h"

#include <algorithm>

namespace heddle::program {

int StageOf(const Pipeline& pipeline, int segment) {
  const auto after =
      std::upper_bound(pipeline.stages.begin(), pipeline.stages.end(), segment,
                       [](int value, const Stage& stage) { return value < stage.last_segment; });
  if (after == pipeline.stages.end() || segment < after->first_segment) {
    return -1;
  }
  return static_cast<int>(after - pipeline.stages.begin());
}

std::vector<int> StagesOf(const Pipeline& pipeline, const std::vector<int>& segments) {
  std::vector<int> stages;
  for (const int segment : segments) {
    const int stage = StageOf(pipeline, segment);
    if (stage >= 0 && (stages.empty() || stages.back() != stage)) {
      stages.push_back(stage);
    }
  }
  return stages;
}

std::vector<std::vector<int>> ParameterSegments(const graph::Graph& graph) {
  std::vector<std::vector<int>> segments(graph.parameters.size());
  const auto add = [&](graph::TensorId id, int segment) {
    const graph::Tensor& tensor = graph.tensor(id);
    if (tensor.kind == graph::TensorKind::kParameter ||
        tensor.kind == graph::TensorKind::kWeightGradient) {
      segments[static_cast<size_t>(tensor.parameter)].push_back(segment);
    }
  };
  for (const graph::Node& node : graph.nodes) {
    for (const graph::TensorId input : node.inputs) {
      add(input, node.segment);
    }
    for (const graph::TensorId output : node.outputs) {
      add(output, node.segment);
    }
  }
  for (std::vector<int>& list : segments) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return segments;
}

Position PositionOf(const Plan& plan, int rank) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const std::vector<Stage>& stages = plan.pipelines[p].stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      const Group& group = stages[s].group;
      const auto member = std::ranges::find(group, rank);
      if (member != group.end()) {
        return {.pipeline = static_cast<int>(p),
                .stage = static_cast<int>(s),
                .member = static_cast<int>(member - group.begin())};
      }
    }
  }
  return {};
}

}  // namespace heddle::program
