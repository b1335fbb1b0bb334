#include "engine/graph/sharding/layout.h"

#include <bit>
#include <numeric>

namespace heddle::graph {
namespace {

using Kind = Placement::Kind;

constexpr int64_t kMaxUnits = int64_t{1} << 20;

int64_t UnitsOf(const Cut& cut) {
  return std::accumulate(cut.units.begin(), cut.units.end(), int64_t{0});
}

Status ValidateCuts(const Layout& layout, bool exact) {
  for (size_t i = 0; i < layout.cuts.size(); ++i) {
    const Cut& cut = layout.cuts[i];
    for (const int units : cut.units) {
      if (units < 0) {
        return InvalidArgumentError("cut {}: a share has {} units", i, units);
      }
    }
    const int64_t sum = UnitsOf(cut);
    if (sum < 1 || sum > kMaxUnits) {
      return InvalidArgumentError("cut {}: expected 1 to {} units in all, got {}", i, kMaxUnits,
                                  sum);
    }
    if (cut.units.size() != layout.cuts[0].units.size()) {
      return InvalidArgumentError("cut {} has {} shares, cut 0 has {}", i, cut.units.size(),
                                  layout.cuts[0].units.size());
    }
    if (sum != UnitsOf(layout.cuts[0])) {
      return InvalidArgumentError("cut {} sums to {} units, cut 0 to {}", i, sum,
                                  UnitsOf(layout.cuts[0]));
    }
    if (exact && !std::has_single_bit(static_cast<uint64_t>(sum))) {
      return InvalidArgumentError("cut {} sums to {} units: exact shards need a power of two", i,
                                  sum);
    }
  }
  return Status::Ok();
}

/// Only parameters cover: gradients of what is covered are counted at one member.
Status ValidateKind(const Tensor& tensor, const Placement& placement) {
  const bool parameter = tensor.kind == TensorKind::kParameter;
  if (tensor.kind == TensorKind::kLoss && placement.kind == Kind::kReplicate) {
    return Status::Ok();
  }
  if (!parameter && tensor.kind != TensorKind::kActivation &&
      tensor.kind != TensorKind::kGradient) {
    return InvalidArgumentError("'{}': only parameters, activations and their gradients are placed",
                                tensor.name);
  }
  if (placement.kind == Kind::kPartial) {
    return InvalidArgumentError("'{}': a layout has no partial tensors", tensor.name);
  }
  if (!parameter && placement.kind == Kind::kShard && (placement.cover || placement.dim == 0)) {
    return InvalidArgumentError(
        "'{}': an activation is cut by sequence or features; pipelines divide the batch",
        tensor.name);
  }
  return Status::Ok();
}

Status ValidatePlaced(const Tensor& tensor, const Placed& placed, const Layout& layout) {
  const Placement& placement = placed.placement;
  HEDDLE_RETURN_IF_ERROR(ValidateKind(tensor, placement));
  if (placement.kind == Kind::kReplicate) {
    return Status::Ok();
  }
  if (placed.cut < 0 || placed.cut >= static_cast<int>(layout.cuts.size())) {
    return InvalidArgumentError("'{}': there is no cut {} among {}", tensor.name, placed.cut,
                                layout.cuts.size());
  }
  const Shape& shape = tensor.type.shape;
  if (placement.dim < 0 || placement.dim >= static_cast<int>(shape.size())) {
    return InvalidArgumentError("'{}' {} has no dimension {}", tensor.name, ToString(shape),
                                placement.dim);
  }
  const int64_t extent = shape[static_cast<size_t>(placement.dim)];
  if (placement.unit < 1 || extent % placement.unit != 0) {
    return InvalidArgumentError("'{}': dimension {} of {} is not in whole units of {}", tensor.name,
                                placement.dim, ToString(shape), placement.unit);
  }
  const int64_t units = extent / placement.unit;
  if (!placement.cover && placed.covered != 0) {
    return InvalidArgumentError("'{}': it covers {} units, but its placement is no cover",
                                tensor.name, placed.covered);
  }
  if (placed.covered > kMaxUnits) {
    return InvalidArgumentError("'{}': it covers {} units, more than {}", tensor.name,
                                placed.covered, kMaxUnits);
  }
  if (placement.cover && (placed.covered < 1 || placed.covered % units != 0)) {
    return InvalidArgumentError("'{}': its {} units do not cover {}", tensor.name, units,
                                placed.covered);
  }
  return Status::Ok();
}

}  // namespace

int MembersOf(const Layout& layout) {
  return layout.cuts.empty() ? 1 : static_cast<int>(layout.cuts[0].units.size());
}

Status ValidateLayout(const Graph& graph, const Layout& layout, bool exact) {
  HEDDLE_RETURN_IF_ERROR(ValidateCuts(layout, exact));
  std::map<std::string, const Tensor*> by_name;
  for (const Tensor& tensor : graph.tensors) {
    by_name[tensor.name] = &tensor;
  }
  for (const auto& [name, placed] : layout.tensors) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      return InvalidArgumentError("the graph has no tensor '{}'", name);
    }
    HEDDLE_RETURN_IF_ERROR(ValidatePlaced(*it->second, placed, layout));
  }
  return Status::Ok();
}

}  // namespace heddle::graph
