#include "tests/planner/support.h"

#include "base/check.h"
#include "engine/graph/models/model.h"
#include "planner/predictor/simulator.h"

namespace heddle::planner {

graph::Graph LlamaGraph(const ModelSize& size) {
  graph::ModelConfig config;
  config.vocab_size = size.vocabulary;
  config.hidden_size = size.hidden;
  config.intermediate_size = size.hidden * 8 / 3 / 16 * 16;
  config.num_hidden_layers = size.layers;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 4;
  graph::TrainingGraphOptions options;
  options.microbatch_size = 1;
  options.sequence_length = size.sequence;
  Result<graph::Graph> graph = graph::BuildTrainingGraph(config, options);
  HEDDLE_CHECK(graph.ok(), "{}", graph.status().ToString());
  return *std::move(graph);
}

program::WorkerProfile SpeedProfile(const std::string& name, double speed) {
  program::WorkerProfile profile;
  profile.worker = name;
  profile.flops_per_second = kNominalFlops * speed;
  profile.bytes_per_second = 20 * kNominalFlops * speed;
  return profile;
}

ClusterProfile ClusterOf(const std::vector<double>& speeds,
                         double bytes_per_second,
                         double latency_seconds) {
  ClusterProfile cluster;
  const int count = static_cast<int>(speeds.size());
  cluster.links = comm::LinkTable(count);
  for (int i = 0; i < count; ++i) {
    cluster.workers.push_back(SpeedProfile(fmt::format("w{}", i), speeds[static_cast<size_t>(i)]));
    for (int j = 0; j < count; ++j) {
      cluster.links.At(i, j) = {.latency_seconds = latency_seconds,
                                .bytes_per_second = bytes_per_second,
                                .transport = "tcp"};
    }
  }
  return cluster;
}

double AloneSeconds(const graph::Graph& graph,
                    const program::WorkerProfile& profile,
                    int microbatches) {
  ClusterProfile alone;
  alone.workers = {profile};
  alone.links = comm::LinkTable(1);
  const Result<Simulation> simulation =
      ScorePlan(graph,
                program::SingleWorkerPlan(profile.worker, static_cast<int>(graph.segments.size()),
                                          microbatches),
                alone);
  HEDDLE_CHECK(simulation.ok(), "{}", simulation.status().ToString());
  return simulation->step_seconds;
}

double RSum(const graph::Graph& graph,
            const ClusterProfile& cluster,
            int microbatches,
            double step_seconds) {
  double alone = 0;
  for (const program::WorkerProfile& worker : cluster.workers) {
    alone += microbatches / AloneSeconds(graph, worker, microbatches);
  }
  return microbatches / step_seconds / alone;
}

}  // namespace heddle::planner
