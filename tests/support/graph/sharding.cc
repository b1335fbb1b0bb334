#include "tests/support/graph/sharding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"

namespace heddle::testing {

using graph::Placement;
using graph::ShardingRule;
using Kind = Placement::Kind;

namespace {

std::string Name(const Placement& placement) {
  if (placement.kind == Kind::kReplicate) {
    return "Replicate";
  }
  const std::string_view kind = placement.kind == Kind::kShard          ? "Shard"
                                : placement.op == graph::ReduceOp::kSum ? "Partial"
                                                                        : "PartialMax";
  if (placement.kind == Kind::kPartial && !placement.cover) {
    return std::string(kind);
  }
  return fmt::format("{}({}, {}{})", kind, placement.dim, placement.unit,
                     placement.cover ? ", cover" : "");
}

/// Units [first, last) of the rule's `units`.
struct Share {
  int64_t first;
  int64_t last;
  int64_t units;
};

struct Interval {
  int64_t begin;
  int64_t end;
};

/// Of `items` in all those that a share has a part of.
Interval Outwards(int64_t items, const Share& share) {
  return {share.first * items / share.units, (share.last * items + share.units - 1) / share.units};
}

/// What a share holds of a tensor of `shape`, along the dimension that is cut.
Interval Held(const Placement& placement, const Shape& shape, const Share& share) {
  const int64_t units = shape[static_cast<size_t>(placement.dim)] / placement.unit;
  const Interval held = Outwards(units, share);
  return {held.begin * placement.unit, held.end * placement.unit};
}

/// Elements after one step along `dim`.
int64_t Inner(const Shape& shape, int dim) {
  return ElementCount(Shape(shape.begin() + dim + 1, shape.end()));
}

/// Calls visit(element of the part, element of the whole) for the part [begin, end) along `dim` of
/// a tensor of `shape`.
void ForEachHeld(const Shape& shape,
                 int dim,
                 Interval held,
                 const std::function<void(int64_t, int64_t)>& visit) {
  const int64_t inner = Inner(shape, dim);
  const int64_t row = (held.end - held.begin) * inner;
  const int64_t whole_row = shape[static_cast<size_t>(dim)] * inner;
  for (int64_t e = 0; e < ElementCount(shape) / whole_row * row; ++e) {
    visit(e, e / row * whole_row + held.begin * inner + e % row);
  }
}

/// [begin, end) along `dim`; the other dimensions whole.
DenseTensor Slice(const DenseTensor& whole, int dim, Interval held) {
  Shape shape = whole.shape;
  shape[static_cast<size_t>(dim)] = held.end - held.begin;
  DenseTensor part(shape);
  ForEachHeld(whole.shape, dim, held, [&](int64_t to, int64_t from) { part[to] = whole[from]; });
  return part;
}

/// The shares that run. Their edges are those of eight blocks, as a job fixes them: two shares or
/// more are left, uneven, some of one unit.
std::vector<Share> RandomShares(int64_t units, Random& random) {
  constexpr int kBlocks = 8;
  HEDDLE_CHECK(units >= 2, "an example is cut into {} units", units);
  for (;;) {
    std::vector<int> edges = {0, kBlocks};
    for (int64_t cuts = random.Between(1, 3); cuts > 0; --cuts) {
      edges.push_back(static_cast<int>(random.Between(0, kBlocks)));
    }
    std::ranges::sort(edges);
    std::vector<Share> shares;
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      const Share share{UnitEdge(units, kBlocks, edges[i]), UnitEdge(units, kBlocks, edges[i + 1]),
                        units};
      if (share.first < share.last) {
        shares.push_back(share);
      }
    }
    if (shares.size() >= 2) {
      return shares;
    }
  }
}

/// Units that the rule cuts, the same for every sharded tensor but those that cover them; nothing
/// when they disagree. A rule that shards no tensor has three.
std::optional<int64_t> Units(const ShardingRule& rule,
                             const std::vector<DenseTensor>& inputs,
                             const std::vector<DenseTensor>& outputs) {
  std::optional<int64_t> units;
  bool agree = true;
  auto visit = [&](const Placement& placement, const DenseTensor& tensor) {
    if (placement.kind != Kind::kShard && !placement.cover) {
      return;
    }
    const auto dim = static_cast<size_t>(placement.dim);
    if (dim >= tensor.shape.size() || tensor.shape[dim] % placement.unit != 0) {
      agree = false;
      return;
    }
    if (!placement.cover) {
      const int64_t here = tensor.shape[dim] / placement.unit;
      agree = agree && units.value_or(here) == here;
      units = here;
    }
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    visit(rule.inputs[i], inputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    visit(rule.outputs[i], outputs[i]);
  }
  return agree ? std::optional(units.value_or(3)) : std::nullopt;
}

/// What each share holds of a tensor under a placement.
std::vector<DenseTensor> Place(const DenseTensor& whole,
                               const Placement& placement,
                               const std::vector<Share>& shares,
                               Random& random) {
  std::vector<DenseTensor> parts(shares.size(), whole);
  if (placement.kind == Kind::kShard) {
    for (size_t s = 0; s < shares.size(); ++s) {
      parts[s] = Slice(whole, placement.dim, Held(placement, whole.shape, shares[s]));
    }
  } else if (placement.kind == Kind::kPartial) {
    for (size_t e = 0; e < whole.values.size(); ++e) {
      double rest = whole.values[e];
      for (size_t s = 0; s + 1 < shares.size(); ++s) {
        parts[s].values[e] = 2 * random.Uniform() - 1;
        rest -= parts[s].values[e];
      }
      parts.back().values[e] = rest;
    }
  }
  return parts;
}

bool Near(const DenseTensor& a, const DenseTensor& b) {
  if (a.shape != b.shape) {
    return false;
  }
  for (size_t e = 0; e < a.values.size(); ++e) {
    if (!(std::abs(a.values[e] - b.values[e]) <= 1e-9 * (1 + std::abs(b.values[e])))) {
      return false;
    }
  }
  return true;
}

/// Whether the parts, each where its share holds it, make the whole tensor together.
bool MakesUp(const std::vector<DenseTensor>& parts,
             const DenseTensor& whole,
             const Placement& placement,
             const std::vector<Share>& shares) {
  const bool adds = placement.op == graph::ReduceOp::kSum;
  DenseTensor made(whole.shape);
  std::ranges::fill(made.values, adds ? 0 : -std::numeric_limits<double>::infinity());
  auto put = [&](double value, int64_t to) {
    made[to] = adds ? made[to] + value : std::max(made[to], value);
  };
  for (size_t s = 0; s < parts.size(); ++s) {
    const DenseTensor& part = parts[s];
    if (placement.cover) {
      const Interval held = Held(placement, whole.shape, shares[s]);
      if (part.shape != Slice(whole, placement.dim, held).shape) {
        return false;
      }
      ForEachHeld(whole.shape, placement.dim, held,
                  [&](int64_t from, int64_t to) { put(part[from], to); });
      continue;
    }
    if (part.shape != whole.shape) {
      return false;
    }
    for (int64_t e = 0; e < ElementCount(whole.shape); ++e) {
      put(part[e], e);
    }
  }
  return Near(made, whole);
}

/// Whether the shares' parts, read as `placement` says, are the whole tensor.
bool Matches(const std::vector<DenseTensor>& parts,
             const DenseTensor& whole,
             const Placement& placement,
             const std::vector<Share>& shares) {
  if (placement.kind == Kind::kPartial) {
    return MakesUp(parts, whole, placement, shares);
  }
  for (size_t s = 0; s < parts.size(); ++s) {
    const bool matches =
        placement.kind == Kind::kReplicate
            ? Near(parts[s], whole)
            : Near(parts[s], Slice(whole, placement.dim, Held(placement, whole.shape, shares[s])));
    if (!matches) {
      return false;
    }
  }
  return true;
}

/// Attributes as one share sees them.
graph::Attributes LocalAttributes(const graph::Attributes& attributes,
                                  const ShardingRule& rule,
                                  const Share& share) {
  graph::Attributes local = attributes;
  for (const std::string& name : rule.scaled) {
    const Interval seen = Outwards(attributes.Int(name), share);
    local.Set(name, seen.end - seen.begin);
  }
  for (const std::string& name : rule.first) {
    local.Set(name, attributes.FindInt(name).value_or(0) + share.first);
  }
  for (const auto& [name, value] : rule.given) {
    local.Set(name, value);
  }
  return local;
}

}  // namespace

std::vector<DenseTensor> RunDensely(const OperatorCall& call, const DenseContext& context) {
  return Evaluate(call.op, call.attributes, call.inputs, context);
}

OperatorCall RandomCall(const Example& example, Random& random) {
  OperatorCall call{
      .op = example.op, .attributes = example.attributes, .types = example.inputs, .inputs = {}};
  for (const graph::TensorType& type : example.inputs) {
    call.inputs.push_back(RandomTensor(type, example.token_bound, random));
    for (double& value : call.inputs.back().values) {
      value = example.positive ? 0.01 + std::abs(value) : value;
    }
  }
  return call;
}

std::vector<ShardingRule> RulesOf(const Example& example) {
  const graph::Operator& op = *graph::FindOperator(example.op);
  const auto outputs = op.Infer(example.inputs, example.attributes);
  HEDDLE_CHECK(outputs.ok(), "{}", outputs.status().ToString());
  return op.ShardingRules(example.inputs, *outputs, example.attributes);
}

std::string Name(const ShardingRule& rule) {
  std::string text;
  for (const Placement& placement : rule.inputs) {
    text += Name(placement) + " ";
  }
  text += "->";
  for (const Placement& placement : rule.outputs) {
    text += fmt::format(" {}", Name(placement));
  }
  return text;
}

std::string Violation(const OperatorCall& whole,
                      const ShardingRule& rule,
                      const OperatorRunner& runner,
                      Random& random,
                      const AttributeFault& fault) {
  const std::vector<DenseTensor> expected = runner(whole, {});
  if (rule.inputs.size() != whole.inputs.size() || rule.outputs.size() != expected.size()) {
    return "wrong number of placements";
  }
  const auto units = Units(rule, whole.inputs, expected);
  if (!units) {
    return "sharded tensors disagree about the units";
  }
  const std::vector<Share> shares = RandomShares(*units, random);
  std::vector<std::vector<DenseTensor>> placed;
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    placed.push_back(Place(whole.inputs[i], rule.inputs[i], shares, random));
  }
  std::vector<std::vector<DenseTensor>> results(expected.size());
  for (size_t s = 0; s < shares.size(); ++s) {
    OperatorCall local{.op = whole.op,
                       .attributes = LocalAttributes(whole.attributes, rule, shares[s]),
                       .types = whole.types,
                       .inputs = {}};
    for (size_t i = 0; i < placed.size(); ++i) {
      local.inputs.push_back(placed[i][s]);
      local.types[i].shape = placed[i][s].shape;
    }
    if (fault) {
      fault(local.attributes);
    }
    // The operator itself must accept a share, and expect what the share gives.
    const auto inferred = graph::FindOperator(whole.op)->Infer(local.types, local.attributes);
    if (!inferred.ok()) {
      return inferred.status().message();
    }
    DenseContext context;
    if (rule.inputs[0] == Placement::Shard(0)) {
      context.first_sample = shares[s].first;
    }
    auto outputs = runner(local, context);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].shape != (*inferred)[o].shape) {
        return "a share's shape is not the inferred one";
      }
      results[o].push_back(std::move(outputs[o]));
    }
  }
  for (size_t o = 0; o < results.size(); ++o) {
    if (!Matches(results[o], expected[o], rule.outputs[o], shares)) {
      return fmt::format("output {} is not {}", o, Name(rule.outputs[o]));
    }
  }
  return "";
}

}  // namespace heddle::testing
