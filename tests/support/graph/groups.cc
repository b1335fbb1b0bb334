#include "tests/support/graph/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/graph/operator.h"
#include "engine/graph/sharding/complete.h"

namespace heddle::testing {

using graph::ModelConfig;
using graph::ModelFamily;

namespace {

std::string TextOf(const std::vector<graph::Range>& ranges) {
  std::vector<std::string> texts;
  for (const graph::Range& range : ranges) {
    texts.push_back(fmt::format("{}:{}", range.begin, range.end));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string TextOf(const graph::Sharding& sharding) {
  switch (sharding.kind) {
    case graph::Placement::Kind::kReplicate:
      return "whole";
    case graph::Placement::Kind::kShard:
      return fmt::format("cut {} at {}", sharding.dim, TextOf(sharding.held));
    case graph::Placement::Kind::kPartial:
      return fmt::format("partial {} at {}", sharding.op == graph::ReduceOp::kSum ? "sum" : "max",
                         TextOf(sharding.held));
  }
  return "";
}

}  // namespace

Group GroupOf(const graph::Graph& graph, const graph::Layout& layout) {
  auto sharded = graph::Complete(graph, layout);
  HEDDLE_CHECK(sharded.ok(), "{}", sharded.status().ToString());
  Group group{.sharded = *std::move(sharded), .members = {}};
  for (int p = 0; p < group.sharded.members; ++p) {
    group.members.push_back(graph::Localise(group.sharded, p));
  }
  return group;
}

std::string Violation(const graph::Graph& graph, const Group& group, uint64_t seed) {
  Random random(seed);
  const auto inputs = RandomInputs(graph, random);
  const DenseContext context{.seed = 7, .step = 3, .first_sample = 4};
  const LockstepRun run = RunLockstep(group.members, inputs, context);
  return run.refused.empty()
             ? Difference(run, group.sharded, group.members, EvaluateGraph(graph, inputs, context))
             : run.refused;
}

std::string ToString(const graph::ShardedGraph& sharded) {
  const graph::Graph& whole = sharded.graph;
  std::string text;
  auto line = [&](graph::TensorId id, std::string_view maker) {
    text += fmt::format("{} by {}: {}\n", whole.tensor(id).name, maker,
                        TextOf(sharded.shardings[static_cast<size_t>(id)]));
  };
  for (const graph::Step& step : sharded.order) {
    if (step.node < 0) {
      const graph::Exchange& exchange = sharded.exchanges[static_cast<size_t>(step.exchange)];
      line(exchange.to, graph::FormName(exchange.form));
      continue;
    }
    const graph::Node& node = whole.node(step.node);
    for (const graph::TensorId output : node.outputs) {
      line(output, node.op->name());
    }
  }
  return text;
}

ModelConfig SmallModel(ModelFamily family, int64_t kv_heads, bool tied) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = 19;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = kv_heads;
  config.max_position_embeddings = 7;
  config.tie_word_embeddings = tied;
  config.dropout = family == ModelFamily::kGpt2 ? 0.2 : 0;
  return config;
}

graph::Graph SmallTrainingGraph(const ModelConfig& config) {
  auto graph = graph::BuildTrainingGraph(
      config, {.microbatch_size = 2, .sequence_length = 5, .compute = DType::kF64});
  HEDDLE_CHECK(graph.ok(), "{}", graph.status().ToString());
  return *std::move(graph);
}

std::vector<GroupCase> GroupCases() {
  const std::vector<int> ones(8, 1);
  auto llama = [](int64_t kv_heads, bool tied = false) {
    return SmallModel(ModelFamily::kLlama, kv_heads, tied);
  };
  auto gpt2 = [](bool tied) { return SmallModel(ModelFamily::kGpt2, 8, tied); };
  return {
      {"two", llama(4), {.units = {4, 4}}},
      {"uneven", llama(8), {.units = {4, 3, 1}}},
      {"uneven groups", llama(4), {.units = {4, 3, 1}}},
      {"empty share", llama(8), {.units = {4, 0, 4}}},
      {"one has all", llama(8), {.units = {0, 8}}},
      {"vocabulary", llama(8), {.units = {4, 3, 1}, .vocabulary = true}},
      {"tied", llama(4, true), {.units = {2, 6}, .vocabulary = true}},
      {"cover", llama(2), {.units = ones, .within_groups = true}},
      {"cover unevenly",
       llama(2, true),
       {.units = {3, 0, 2, 3}, .vocabulary = true, .within_groups = true}},
      {"one key", llama(1), {.units = {4, 3, 1}, .within_groups = true}},
      {"sequence", llama(8), {.units = {4, 4}, .sequence = true}},
      {"sequence unevenly",
       llama(2),
       {.units = {4, 3, 1}, .vocabulary = true, .within_groups = true, .sequence = true}},
      {"gpt2", gpt2(false), {.units = {4, 4}}},
      {"gpt2 tied", gpt2(true), {.units = {4, 3, 1}, .vocabulary = true}},
      {"gpt2 sequence", gpt2(true), {.units = {2, 6}, .sequence = true}},
  };
}

}  // namespace heddle::testing
