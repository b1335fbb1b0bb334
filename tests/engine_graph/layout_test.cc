// Layouts that are refused, and what shares come to.
#include "engine/graph/sharding/layout.h"

#include <functional>

#include <gtest/gtest.h>

#include "engine/graph/models/model.h"
#include "engine/graph/sharding/complete.h"

namespace heddle::graph {
namespace {

Graph SmallLlama() {
  ModelConfig config;
  config.vocab_size = 20;
  config.hidden_size = 32;
  config.intermediate_size = 24;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  auto graph = BuildTrainingGraph(config, {.microbatch_size = 2, .sequence_length = 5});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

/// A layout of SmallLlama that is valid and exact.
Layout ValidLayout() {
  return {.cuts = {{.units = {4, 3, 1}}, {.units = {0, 8, 0}}},
          .tensors = {{"layers.0.attention.query.weight", {.placement = Placement::Shard(0, 4)}},
                      {"layers.0.attention.key.weight",
                       {.placement = Placement::Cover(0, 4), .covered = 8}},
                      {"head.weight", {.placement = Placement::Shard(0), .cut = 1}},
                      {"layers.0.mlp.residual", {.placement = Placement::Shard(1)}},
                      {"head.norm.weight", {.placement = Placement::Replicate()}},
                      {"loss", {.placement = Placement::Replicate()}}}};
}

struct Refusal {
  std::function<void(Layout&)> change;
  std::string message;
};

void ExpectRefused(const std::vector<Refusal>& refusals) {
  const Graph graph = SmallLlama();
  for (const Refusal& refusal : refusals) {
    Layout layout = ValidLayout();
    refusal.change(layout);
    const Status status = ValidateLayout(graph, layout, /*exact=*/true);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.message;
    EXPECT_EQ(status.message(), refusal.message);
  }
}

TEST(LayoutTest, AValidLayoutIsAccepted) {
  EXPECT_TRUE(ValidateLayout(SmallLlama(), ValidLayout(), /*exact=*/true).ok());
  EXPECT_TRUE(ValidateLayout(SmallLlama(), {}, /*exact=*/true).ok());
}

TEST(LayoutTest, EveryFaultOfACutIsNamedInOneLine) {
  ExpectRefused({
      {[](Layout& l) {
         l.cuts[1].units = {0, 7, 0};
       },
       "cut 1 sums to 7 units, cut 0 to 8"},
      {[](Layout& l) {
         l.cuts[1].units = {4, 4};
       },
       "cut 1 has 2 shares, cut 0 has 3"},
      {[](Layout& l) {
         l.cuts[1].units = {9, -1, 0};
       },
       "cut 1: a share has -1 units"},
      {[](Layout& l) {
         l.cuts = {{.units = {0, 0, 0}}, {.units = {0, 0, 0}}};
       },
       "cut 0: expected 1 to 1048576 units in all, got 0"},
      {[](Layout& l) {
         l.cuts = {{.units = {2, 3, 1}}, {.units = {0, 6, 0}}};
       },
       "cut 0 sums to 6 units: exact shards need a power of two"},
  });
}

TEST(LayoutTest, EveryFaultOfATensorIsNamedInOneLine) {
  const std::string query = "layers.0.attention.query.weight";
  const std::string key = "layers.0.attention.key.weight";
  const std::string residual = "layers.0.mlp.residual";
  ExpectRefused({
      {[&](Layout& l) { l.tensors["nobody"] = {}; }, "the graph has no tensor 'nobody'"},
      {[&](Layout& l) { l.tensors[query].cut = 2; },
       "'layers.0.attention.query.weight': there is no cut 2 among 2"},
      {[&](Layout& l) { l.tensors[query].cut = -1; },
       "'layers.0.attention.query.weight': there is no cut -1 among 2"},
      {[&](Layout& l) { l.tensors[query].placement.dim = 2; },
       "'layers.0.attention.query.weight' [32, 32] has no dimension 2"},
      {[&](Layout& l) { l.tensors[query].placement.unit = 5; },
       "'layers.0.attention.query.weight': dimension 0 of [32, 32] is not in whole units of 5"},
      {[&](Layout& l) { l.tensors[query].placement.unit = 0; },
       "'layers.0.attention.query.weight': dimension 0 of [32, 32] is not in whole units of 0"},
      {[&](Layout& l) { l.tensors[key].covered = 0; },
       "'layers.0.attention.key.weight': its 4 units do not cover 0"},
      {[&](Layout& l) { l.tensors[key].covered = 6; },
       "'layers.0.attention.key.weight': its 4 units do not cover 6"},
      {[&](Layout& l) { l.tensors[key].covered = 1 << 21; },
       "'layers.0.attention.key.weight': it covers 2097152 units, more than 1048576"},
      {[&](Layout& l) { l.tensors[query].covered = 8; },
       "'layers.0.attention.query.weight': it covers 8 units, but its placement is no cover"},
      {[&](Layout& l) { l.tensors[key].placement = Placement::Partial(); },
       "'layers.0.attention.key.weight': a layout has no partial tensors"},
      {[&](Layout& l) { l.tensors[residual].placement.dim = 0; },
       "'layers.0.mlp.residual': an activation is cut by sequence or features; pipelines divide "
       "the batch"},
      {[&](Layout& l) { l.tensors[residual].placement.cover = true; },
       "'layers.0.mlp.residual': an activation is cut by sequence or features; pipelines divide "
       "the batch"},
      {[&](Layout& l) { l.tensors["tokens"] = {}; },
       "'tokens': only parameters, activations and their gradients are placed"},
      {[&](Layout& l) { l.tensors["head.weight.grad.0"] = {}; },
       "'head.weight.grad.0': only parameters, activations and their gradients are placed"},
  });
}

TEST(LayoutTest, OnlyExactJobsNeedAPowerOfTwo) {
  const Layout layout = {.cuts = {{.units = {2, 3, 1}}}, .tensors = {}};
  EXPECT_TRUE(ValidateLayout(SmallLlama(), layout, /*exact=*/false).ok());
  EXPECT_TRUE(Complete(SmallLlama(), layout).ok());
}

TEST(LayoutTest, CompleteRefusesWhatIsNotValid) {
  Layout layout = ValidLayout();
  layout.cuts[1].units = {1};
  EXPECT_EQ(Complete(SmallLlama(), layout).status().message(), "cut 1 has 1 shares, cut 0 has 3");
}

// A share of query heads that begins or ends within a group has the group's key/value head; an
// empty one has none, also within a group.
TEST(LayoutTest, CoversAreRoundedOutwards) {
  const Layout layout = {.cuts = {{.units = {3, 0, 1, 4}}}, .tensors = {}};
  const Sharding key =
      ShardingOf({.placement = Placement::Cover(0, 4), .covered = 8}, {16, 32}, layout);
  EXPECT_EQ(key.held, (std::vector<Range>{{0, 8}, {0, 0}, {4, 8}, {8, 16}}));
  EXPECT_EQ(OwnersOf(key.held), (std::vector<Range>{{0, 8}, {0, 0}, {0, 0}, {8, 16}}));
  EXPECT_EQ(BoxOf(key, {16, 32}, 3), (Box{.offset = {8, 0}, .extent = {8, 32}}));
  EXPECT_EQ(BoxOf(key, {16, 32}, 1), std::nullopt);
  const Sharding query = ShardingOf({.placement = Placement::Shard(1, 4)}, {32, 32}, layout);
  EXPECT_EQ(query.held, (std::vector<Range>{{0, 12}, {0, 0}, {12, 16}, {16, 32}}));
  const Sharding whole = ShardingOf({.placement = Placement::Replicate()}, {}, layout);
  EXPECT_EQ(whole.kind, Placement::Kind::kReplicate);
  EXPECT_TRUE(whole.held.empty());
  EXPECT_TRUE(Tiles(query.held, 32));
  EXPECT_FALSE(Tiles(key.held, 16));
  EXPECT_FALSE(Tiles(query.held, 33));
}

TEST(LayoutTest, OneMemberHasAllWhereNothingIsCut) {
  EXPECT_EQ(MembersOf({}), 1);
  EXPECT_EQ(MembersOf(ValidLayout()), 3);
}

TEST(LayoutTest, ShardingsAreAlikeByWhatMembersHaveAndWhatItMeans) {
  using Kind = Placement::Kind;
  const std::vector<Range> held = {{0, 4}, {4, 6}};
  const std::vector<Sharding> unlike = {
      {},
      {.kind = Kind::kShard, .dim = 0, .held = held},
      {.kind = Kind::kShard, .dim = 1, .held = held},
      {.kind = Kind::kShard, .dim = 1, .held = {{0, 3}, {3, 6}}},
      {.kind = Kind::kPartial, .dim = 1, .held = held},
      {.kind = Kind::kPartial, .dim = 1, .op = ReduceOp::kMax, .held = held}};
  for (size_t a = 0; a < unlike.size(); ++a) {
    for (size_t b = 0; b < unlike.size(); ++b) {
      EXPECT_EQ(Alike(unlike[a], unlike[b]), a == b) << a << " " << b;
    }
  }
  // Neither the cut that a sharding comes from nor the other fields of a whole tensor matter.
  EXPECT_TRUE(Alike(unlike[1], {.kind = Kind::kShard, .dim = 0, .cut = 3, .held = held}));
  EXPECT_TRUE(Alike({}, {.kind = Kind::kReplicate, .dim = 1, .held = held}));
}

}  // namespace
}  // namespace heddle::graph
