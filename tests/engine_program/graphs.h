/// \file
/// A small graph whose program can be followed by hand, and plans over it.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/builder.h"
#include "engine/program/plan.h"

namespace heddle::testing {

/// A graph with the segments "embedding", "linear1" … (one bias-free linear layer each) and "head"
/// (linear and loss). B = 1, T = 2, D = 4, V = 8. `tied`: the head reads the embedding's weight.
inline graph::Graph ChainGraph(int segments, bool tied = false, DType compute = DType::kF32) {
  HEDDLE_CHECK(segments >= 2, "a chain has an embedding and a head");
  constexpr int64_t kHidden = 4;
  constexpr int64_t kVocabulary = 8;
  graph::GraphBuilder builder(compute, 1, 2);
  const auto apply = [&](std::string_view op, const std::string& name,
                         std::vector<graph::TensorId> inputs, graph::Attributes attributes = {}) {
    Result<graph::TensorId> output =
        builder.Apply1(op, name, std::move(inputs), std::move(attributes));
    HEDDLE_CHECK(output.ok(), "{}", output.status().ToString());
    return *output;
  };
  builder.BeginSegment("embedding", -1);
  const graph::TensorId table =
      builder.AddParameter("embedding.weight", {kVocabulary, kHidden}, {}, true);
  graph::TensorId x = apply("embedding", "embedding", {builder.tokens(), table});
  for (int i = 1; i + 1 < segments; ++i) {
    const std::string name = fmt::format("linear{}", i);
    builder.BeginSegment(name, i - 1);
    x = apply("linear", name,
              {x, builder.AddParameter(name + ".weight", {kHidden, kHidden}, {}, true)});
  }
  builder.BeginSegment("head", -1);
  const graph::TensorId head =
      tied ? table : builder.AddParameter("head.weight", {kVocabulary, kHidden}, {}, true);
  x = apply("linear", "logits", {x, head});
  const graph::TensorId loss =
      apply("cross_entropy", "loss", {x, builder.targets()}, {{"scale", 0.5}});
  graph::Graph graph = builder.Finish(loss);
  const Status status = graph::Differentiate(graph);
  HEDDLE_CHECK(status.ok(), "{}", status.ToString());
  return graph;
}

/// A pipeline given by its cuts: {0, 2, 5} is two stages; workers are numbered from `first_worker`.
inline program::Pipeline PipelineOfCuts(const std::vector<int>& cuts,
                                        int first_worker,
                                        int first_microbatch,
                                        int microbatches) {
  program::Pipeline pipeline{.first_microbatch = first_microbatch, .microbatches = microbatches};
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    pipeline.stages.push_back({.group = {first_worker + static_cast<int>(s)},
                               .first_segment = cuts[s],
                               .last_segment = cuts[s + 1]});
  }
  return pipeline;
}

/// A plan of these pipelines with `workers` members "w0", "w1", ….
inline program::Plan PlanOf(int workers, std::vector<program::Pipeline> pipelines) {
  program::Plan plan;
  plan.generation = 1;
  for (int i = 0; i < workers; ++i) {
    plan.workers.push_back(fmt::format("w{}", i));
  }
  plan.pipelines = std::move(pipelines);
  return plan;
}

}  // namespace heddle::testing
