/// \file
/// What operators share: checks of input types with one wording, default cost, and the making of
/// sharding rules.
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/gradient.h"
#include "engine/graph/operator.h"

namespace heddle::graph {

/// Errors: kInvalidArgument unless `inputs` has between `least` and `most` entries.
Status CheckCount(std::string_view op,
                  std::span<const TensorType> inputs,
                  size_t least,
                  size_t most);

/// Errors: kInvalidArgument unless `type` is floating point with at least `least_rank` dimensions.
Status CheckFloating(std::string_view op,
                     std::string_view what,
                     const TensorType& type,
                     size_t least_rank);

/// Errors: kInvalidArgument unless `type` is floating point with exactly `rank` dimensions.
Status CheckRank(std::string_view op, std::string_view what, const TensorType& type, size_t rank);

/// Errors: kInvalidArgument unless `type` is `expected`, which `reference` (another input) demands.
Status CheckType(std::string_view op,
                 std::string_view what,
                 const TensorType& type,
                 const TensorType& expected,
                 std::string_view reference_name,
                 const TensorType& reference);

/// The type without its last dimension, in the master type: a norm's statistics.
TensorType StatisticsType(const TensorType& x);

/// The last dimension alone, in the master type: norms' weights, biases and their gradients.
TensorType FeatureType(const TensorType& x);

/// Bytes of all inputs and outputs once, and `flops_per_element` of the first output.
Cost ElementwiseCost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs,
                     double flops_per_element);

/// (query, key) pairs that causal attention computes for one head over `length` positions: blocks
/// of 32 query rows, as the kernels take them, each with all keys up to its last row. About half of
/// length².
double AttendedPairs(int64_t length);

/// The integer attribute `name`, which tells a share where it begins in the whole; 0 when it is
/// absent.
inline int64_t First(const Attributes& attributes, std::string_view name) {
  return attributes.FindInt(name).value_or(0);
}

double TotalBytes(std::span<const TensorType> types);

/// Adds one backward node with a single output and contributes it to input i, if that is wanted.
Status ContributeNode(GradientBuilder& builder,
                      int i,
                      std::string_view op,
                      std::vector<TensorId> inputs,
                      Attributes attributes,
                      Phase phase);

/// Collects rules; the first is everything replicated.
class RuleList {
 public:
  RuleList(size_t inputs, size_t outputs);

  RuleList& Add(std::vector<Placement> inputs,
                std::vector<Placement> outputs,
                std::vector<std::string> scaled = {},
                std::vector<std::string> first = {},
                std::map<std::string, int64_t> given = {});
  std::vector<ShardingRule> Take() { return std::move(rules_); }

 private:
  std::vector<ShardingRule> rules_;
};

/// For rules' brevity.
inline Placement Whole() {
  return Placement::Replicate();
}
inline Placement Cut(int dim, int64_t unit = 1) {
  return Placement::Shard(dim, unit);
}
inline Placement Cover(int dim, int64_t unit) {
  return Placement::Cover(dim, unit);
}
inline Placement CoverSum(int dim, int64_t unit) {
  return Placement::PartialCover(dim, unit);
}
inline Placement Max() {
  return Placement::PartialMax();
}
inline Placement Sum() {
  return Placement::Partial();
}

/// Index of the last dimension.
inline int LastDim(const TensorType& type) {
  return static_cast<int>(type.shape.size()) - 1;
}

}  // namespace heddle::graph
