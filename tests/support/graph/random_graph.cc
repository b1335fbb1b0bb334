#include "tests/support/graph/random_graph.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "engine/graph/builder.h"

namespace heddle::testing {
namespace {

using graph::Attributes;
using graph::GraphBuilder;
using graph::Initializer;
using graph::TensorId;

constexpr Initializer kMatrix = {.kind = Initializer::Kind::kNormal, .standard_deviation = 0.2};

class Generator {
 public:
  Generator(uint64_t seed, DType compute)
      : random_(seed),
        head_dim_(2 * random_.Between(1, 3)),
        kv_heads_(random_.Between(1, 3)),
        heads_(kv_heads_ * random_.Between(1, 2)),
        hidden_(random_.Below(2) == 0 ? head_dim_ * heads_ : random_.Between(3, 12)),
        vocabulary_(random_.Between(5, 24)),
        sequence_(random_.Between(2, 6)),
        batch_(random_.Between(1, 3)),
        builder_(compute, batch_, sequence_) {}

  graph::Graph Run();

 private:
  bool Coin() { return random_.Below(2) == 0; }
  std::string Fresh(std::string_view what) { return fmt::format("{}{}", what, number_++); }
  int64_t Features(TensorId x) const { return builder_.type(x).shape.back(); }

  TensorId Apply(std::string_view op, std::vector<TensorId> inputs, Attributes attributes = {}) {
    auto output = builder_.Apply1(op, Fresh(op), std::move(inputs), std::move(attributes));
    HEDDLE_CHECK(output.ok(), "{}", output.status().ToString());
    return *output;
  }
  TensorId Vector(std::string_view what, int64_t features, Initializer::Kind kind) {
    return builder_.AddParameter(Fresh(what), {features}, {.kind = kind}, /*decay=*/false);
  }
  TensorId Linear(TensorId x, int64_t out_features);
  TensorId Norm(TensorId x);
  TensorId Attention(TensorId x);
  TensorId Mlp(TensorId x);
  TensorId Chain(TensorId x);
  TensorId Segment(TensorId x);

  Random random_;
  const int64_t head_dim_;
  const int64_t kv_heads_;
  const int64_t heads_;
  const int64_t hidden_;
  const int64_t vocabulary_;
  const int64_t sequence_;
  const int64_t batch_;
  GraphBuilder builder_;
  int number_ = 0;
};

TensorId Generator::Linear(TensorId x, int64_t out_features) {
  std::vector<TensorId> inputs = {
      x,
      builder_.AddParameter(Fresh("matrix"), {out_features, Features(x)}, kMatrix, /*decay=*/true)};
  if (Coin()) {
    inputs.push_back(Vector("bias", out_features, Initializer::Kind::kZeros));
  }
  return Apply("linear", std::move(inputs));
}

TensorId Generator::Norm(TensorId x) {
  const TensorId weight = Vector("scale", Features(x), Initializer::Kind::kOnes);
  if (Coin()) {
    return Apply("rms_norm", {x, weight}, {{"epsilon", 1e-5}});
  }
  return Apply("layer_norm", {x, weight, Vector("shift", Features(x), Initializer::Kind::kZeros)},
               {{"epsilon", 1e-5}});
}

TensorId Generator::Attention(TensorId x) {
  TensorId query = Linear(x, heads_ * head_dim_);
  TensorId key = Linear(x, kv_heads_ * head_dim_);
  const TensorId value = Linear(x, kv_heads_ * head_dim_);
  if (Coin()) {
    const Attributes rope = {{"head_dim", head_dim_}, {"inverse", int64_t{0}}, {"theta", 100.0}};
    query = Apply("rope", {query}, rope);
    key = Apply("rope", {key}, rope);
  }
  return Apply("attention", {query, key, value}, {{"heads", heads_}, {"kv_heads", kv_heads_}});
}

TensorId Generator::Mlp(TensorId x) {
  const int64_t inner = random_.Between(2, 16);
  const TensorId up = Linear(x, inner);
  return Coin() ? Apply("swiglu", {Linear(x, inner), up}) : Apply("gelu", {up});
}

/// One to three blocks, ending with `hidden_` features. A norm stands first and before each MLP, so
/// that values stay moderate however long the graph is.
TensorId Generator::Chain(TensorId x) {
  x = Norm(x);
  const int64_t blocks = random_.Between(1, 3);
  for (int64_t i = 0; i < blocks; ++i) {
    const TensorId before = x;
    switch (random_.Below(3)) {
      case 0:
        x = Attention(x);
        break;
      case 1:
        x = Mlp(i == 0 ? x : Norm(x));
        break;
      default:
        x = Linear(x, random_.Between(2, 12));
    }
    if (Features(x) == Features(before) && Coin()) {
      x = Apply("add", {before, x});
    }
  }
  return Features(x) == hidden_ && Coin() ? x : Linear(x, hidden_);
}

/// Mostly with a residual connection over the whole segment, in either order.
TensorId Generator::Segment(TensorId x) {
  const TensorId y = Chain(x);
  switch (random_.Below(4)) {
    case 0:
      return y;
    case 1:
      return Apply("add", {y, x});
    default:
      return Apply("add", {x, y});
  }
}

graph::Graph Generator::Run() {
  builder_.BeginSegment("embedding", -1);
  const TensorId table =
      builder_.AddParameter("embedding.weight", {vocabulary_, hidden_}, kMatrix, /*decay=*/true);
  TensorId x = Apply("embedding", {builder_.tokens(), table});
  if (Coin()) {
    const int64_t positions = sequence_ + random_.Between(0, 3);
    x = Apply("add_position", {x, builder_.AddParameter("position.weight", {positions, hidden_},
                                                        kMatrix, /*decay=*/true)});
  }
  const int64_t middle = random_.Between(1, 8);
  for (int i = 0; i < middle; ++i) {
    builder_.BeginSegment(fmt::format("segment{}", i), i);
    x = Segment(x);
  }
  builder_.BeginSegment("head", -1);
  x = Norm(x);
  const bool tied = Coin();
  const TensorId logits = tied ? Apply("linear", {x, table}) : Linear(x, vocabulary_);
  const TensorId loss =
      Apply("cross_entropy", {logits, builder_.targets()},
            {{"scale", 1.0 / static_cast<double>(batch_ * sequence_ * random_.Between(1, 8))}});
  graph::Graph graph = builder_.Finish(loss);
  const Status status = Differentiate(graph);
  HEDDLE_CHECK(status.ok(), "{}", status.ToString());
  return graph;
}

}  // namespace

graph::Graph RandomGraph(uint64_t seed, DType compute) {
  return Generator(seed, compute).Run();
}

}  // namespace heddle::testing
