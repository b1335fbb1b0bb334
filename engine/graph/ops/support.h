/// \file
/// Helpers of operators: checks of input types with uniform messages, default costs, and the
/// construction of sharding rules.
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

/// Checks that `inputs` has between `least` and `most` entries. Errors: kInvalidArgument.
Status CheckCount(std::string_view op,
                  std::span<const TensorType> inputs,
                  size_t least,
                  size_t most);

/// Checks that `type` is floating point with at least `least_rank` dimensions. Errors:
/// kInvalidArgument.
Status CheckFloating(std::string_view op,
                     std::string_view what,
                     const TensorType& type,
                     size_t least_rank);

/// Checks that `type` is floating point with exactly `rank` dimensions. Errors: kInvalidArgument.
Status CheckRank(std::string_view op, std::string_view what, const TensorType& type, size_t rank);

/// Checks that `type` is `expected`, which follows from `reference`, another input. Errors:
/// kInvalidArgument.
Status CheckType(std::string_view op,
                 std::string_view what,
                 const TensorType& type,
                 const TensorType& expected,
                 std::string_view reference_name,
                 const TensorType& reference);

/// The type of a norm's statistics: `x` without its last dimension, in the master type.
TensorType StatisticsType(const TensorType& x);

/// The type of norms' weights, biases and their gradients: the last dimension of `x`, in the master
/// type.
TensorType FeatureType(const TensorType& x);

/// The cost of an element-wise operator: the bytes of all inputs and outputs, and
/// `flops_per_element` for each element of the first output.
Cost ElementwiseCost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs,
                     double flops_per_element);

/// Number of (query, key) pairs that causal attention computes for one head over `length`
/// positions: blocks of 32 query rows, as in the kernels, each with all keys up to its last row.
/// About half of length².
double AttendedPairs(int64_t length);

/// The integer attribute `name`, which tells a share where it begins in the whole; 0 when it is
/// absent.
inline int64_t First(const Attributes& attributes, std::string_view name) {
  return attributes.FindInt(name).value_or(0);
}

double TotalBytes(std::span<const TensorType> types);

/// Adds a backward node with a single output and contributes it to the gradient of input i, if that
/// is needed.
Status ContributeNode(GradientBuilder& builder,
                      int i,
                      std::string_view op,
                      std::vector<TensorId> inputs,
                      Attributes attributes,
                      Phase phase);

/// Collects sharding rules; in the first everything is replicated.
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

/// Short names for placements in rules: Whole, Cut and Sum.
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

/// The index of the last dimension.
inline int LastDim(const TensorType& type) {
  return static_cast<int>(type.shape.size()) - 1;
}

}  // namespace heddle::graph
