/// \file
/// The interface of operators. Every operator defines its output types, its cost, its gradient (as
/// nodes) and its sharding rules; its kernel has the same name under engine/runtime/kernels. To add
/// an operator, add one file in engine/graph/ops, which registers itself, and one for its kernel;
/// if no existing operator computes its gradient, that takes two more. docs/internals/testing.md,
/// "A new operator", lists what the tests need.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"

namespace heddle::graph {

class GradientBuilder;

/// The work of one execution of an operator.
struct Cost {
  double flops = 0;
  double bytes = 0;  ///< Bytes of memory read and written, each counted once.
};

/// How the values of several workers are combined into one.
enum class ReduceOp : uint8_t { kSum, kMax };

/// The placement of a tensor on an axis of workers, in the terms of GSPMD and DTensor.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial } kind = Kind::kReplicate;
  int dim = 0;  ///< For kShard: the dimension that is sharded (shards may be uneven, or empty).
  /// For kShard: elements of `dim` that stay together (a head); shards are multiples of it. All
  /// sharded tensors of a rule have the same number of units and are divided at the same units.
  int64_t unit = 1;
  /// For kShard and kPartial: `dim` has fewer units than the rule, M instead of N, and a share's
  /// are rounded outwards: units [a, b) of N hold [floor(a M / N), ceil(b M / N)) of M, none of N
  /// none of M. Neighbours may share one (a key/value head, when query heads are cut). A kPartial
  /// tensor is cut along `dim` then, and its value at a unit is made by those who hold the unit.
  bool cover = false;
  ReduceOp op = ReduceOp::kSum;  ///< For kPartial.

  static Placement Replicate() { return {}; }
  static Placement Shard(int dim, int64_t unit = 1) {
    return {.kind = Kind::kShard, .dim = dim, .unit = unit};
  }
  static Placement Partial() {
    return {.kind = Kind::kPartial};
  }  ///< The workers' values add up to the tensor.
  static Placement PartialMax() {
    return {.kind = Kind::kPartial, .op = ReduceOp::kMax};
  }  ///< The largest of the workers' values is the tensor's.
  static Placement Cover(int dim, int64_t unit) {
    return {.kind = Kind::kShard, .dim = dim, .unit = unit, .cover = true};
  }
  static Placement PartialCover(int dim, int64_t unit) {
    return {.kind = Kind::kPartial, .dim = dim, .unit = unit, .cover = true};
  }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// A combination of input placements and the output placements that they give without
/// communication. An empty shard runs nothing and has no part in a sum.
struct ShardingRule {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  /// Integer attributes that are scaled by a shard's fraction of the units, rounded outwards as
  /// `cover` does: attention over 2 of 8 units runs with a quarter of the heads.
  std::vector<std::string> scaled = {};
  /// Integer attributes, 0 where they are absent, that grow by the share's first unit: rope over
  /// positions [4, 8) runs with a `first_position` of 4.
  std::vector<std::string> first = {};
  /// Integer attributes that tell a share of the whole what its own types do not, with their
  /// values: dropout's `features`, attention's `group`.
  std::map<std::string, int64_t> given = {};
};

/// One of the smaller operators that compute together what an operator computes, so that members of
/// a group can exchange values between them.
struct OperatorPart {
  std::string_view op;
  Attributes attributes;
  /// The operator's inputs by number; the outputs of the parts before are numbered on after them.
  std::vector<int> inputs;
};

class Operator {
 public:
  virtual ~Operator() = default;

  /// The unique name, lower case with underscores; it is also that of the kernel and the file.
  virtual std::string_view name() const = 0;

  /// The output types for these inputs. Errors: kInvalidArgument, naming the shapes that do not
  /// fit.
  virtual Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                                const Attributes& attributes) const = 0;

  virtual Cost CostOf(std::span<const TensorType> inputs,
                      std::span<const TensorType> outputs,
                      const Attributes& attributes) const = 0;

  /// Adds the nodes that compute the inputs' gradients from the outputs' gradients (gradient.h).
  /// The default is for operators that are never differentiated (backward operators):
  /// kInvalidArgument.
  virtual Status Gradient(GradientBuilder& builder) const;

  /// All rules of placements that need no communication. In the first everything is replicated.
  virtual std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                                  std::span<const TensorType> outputs,
                                                  const Attributes& attributes) const = 0;

  /// The parts that compute the same, the last one with all outputs; the default is none.
  virtual std::vector<OperatorPart> Parts(std::span<const TensorType> inputs,
                                          const Attributes& attributes) const;
};

/// The registered operator `name`; null: there is none.
const Operator* FindOperator(std::string_view name);

/// All registered operators, sorted by name.
std::vector<const Operator*> AllOperators();

/// Registers an operator for the life of the process; defined once per operator, at namespace
/// scope.
struct OperatorRegistration {
  explicit OperatorRegistration(std::unique_ptr<Operator> op);
};
#define HEDDLE_REGISTER_OPERATOR(T)                                        \
  static const ::heddle::graph::OperatorRegistration registration_of_##T { \
    std::make_unique<T>()                                                  \
  }

}  // namespace heddle::graph
