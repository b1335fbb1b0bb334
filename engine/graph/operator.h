/// \file
/// The interface of operators. Every operator defines its output types, its cost, its gradient (as
/// nodes) and its sharding rules; its kernel has the same name under engine/runtime/kernels. To add
/// an operator, add one file in engine/graph/ops, which registers itself, and one for its kernel;
/// if no existing operator computes its gradient, that takes two more. docs/internals/testing.md,
/// "A new operator", lists what the tests need.
#pragma once

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

/// The placement of a tensor on an axis of workers, in the terms of GSPMD and DTensor.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial } kind = Kind::kReplicate;
  int dim = 0;  ///< For kShard: the dimension that is sharded (shards may be uneven).
  /// For kShard: elements of `dim` that stay together (a head); shards are multiples of it. All
  /// sharded tensors of a rule have the same number of units and are divided at the same units.
  int64_t unit = 1;

  static Placement Replicate() { return {}; }
  static Placement Shard(int dim, int64_t unit = 1) {
    return {.kind = Kind::kShard, .dim = dim, .unit = unit};
  }
  static Placement Partial() {
    return {.kind = Kind::kPartial};
  }  ///< The workers' values add up to the tensor.
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// A combination of input placements and the output placements that they give without
/// communication.
struct ShardingRule {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  /// Integer attributes that are scaled by a shard's fraction of the units: attention over 2 of 8
  /// units runs with a quarter of the heads.
  std::vector<std::string> scaled = {};
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
