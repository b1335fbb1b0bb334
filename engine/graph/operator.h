/// \file
/// What an operator means. Every operator knows its output types, its cost, its gradient (as
/// nodes), its sharding rules; its kernel has the same name under engine/runtime/kernels. Adding an
/// operator is adding one file in engine/graph/ops, which registers itself, and one for its kernel;
/// its gradient's operator, where there is none that fits, is two more. What the tests need:
/// docs/internals/testing.md, "A new operator".
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

/// Work of one execution: arithmetic, and bytes read and written once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// How the values of several workers make one.
enum class ReduceOp : uint8_t { kSum, kMax };

/// How a tensor lies on an axis of workers, in the words of GSPMD and DTensor.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial } kind = Kind::kReplicate;
  int dim = 0;  ///< For kShard: the dimension that is cut (shares may be uneven, or empty).
  /// For kShard: elements of `dim` that stay together (a head); shares are multiples of it. All
  /// sharded tensors of one rule have the same number of units and are cut at the same ones.
  int64_t unit = 1;
  /// For kShard and kPartial: `dim` has fewer units than the rule, M instead of N, and a share's
  /// are rounded outwards: units [a, b) of N hold [floor(a M / N), ceil(b M / N)) of M. Neighbours
  /// may share one (a key/value head, when query heads are cut). A kPartial tensor is cut along
  /// `dim` then, and its value at a unit is made by those who hold the unit.
  bool cover = false;
  ReduceOp op = ReduceOp::kSum;  ///< For kPartial.

  static Placement Replicate() { return {}; }
  static Placement Shard(int dim, int64_t unit = 1) {
    return {.kind = Kind::kShard, .dim = dim, .unit = unit};
  }
  static Placement Partial() {
    return {.kind = Kind::kPartial};
  }  ///< Values whose sum is the tensor.
  static Placement PartialMax() {
    return {.kind = Kind::kPartial, .op = ReduceOp::kMax};
  }  ///< Values whose largest is the tensor's.
  static Placement Cover(int dim, int64_t unit) {
    return {.kind = Kind::kShard, .dim = dim, .unit = unit, .cover = true};
  }
  static Placement PartialCover(int dim, int64_t unit) {
    return {.kind = Kind::kPartial, .dim = dim, .unit = unit, .cover = true};
  }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Inputs placed so give outputs placed so, with no communication. An empty share runs nothing and
/// has no part in a sum.
struct ShardingRule {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  /// Integer attributes of which a share sees its units' part, rounded outwards as `cover` does:
  /// attention over 2 of 8 units runs with a quarter of the heads.
  std::vector<std::string> scaled = {};
  /// Integer attributes, 0 where they are absent, that grow by the share's first unit: rope over
  /// positions [4, 8) runs with a `first_position` of 4.
  std::vector<std::string> first = {};
  /// Integer attributes that tell a share of the whole what its own types do not, with their
  /// values: dropout's `features`, attention's `group`.
  std::map<std::string, int64_t> given = {};
};

class Operator {
 public:
  virtual ~Operator() = default;

  /// Unique, lower case with underscores; the kernel's and the file's name.
  virtual std::string_view name() const = 0;

  /// Output types for these inputs. Errors: kInvalidArgument, naming the shapes that do not fit.
  virtual Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                                const Attributes& attributes) const = 0;

  virtual Cost CostOf(std::span<const TensorType> inputs,
                      std::span<const TensorType> outputs,
                      const Attributes& attributes) const = 0;

  /// Adds the nodes that compute the inputs' gradients from the outputs' gradients (gradient.h).
  /// The default is for operators that are never differentiated (backward operators):
  /// kInvalidArgument.
  virtual Status Gradient(GradientBuilder& builder) const;

  /// All placements that need no communication. The first is everything replicated.
  virtual std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                                  std::span<const TensorType> outputs,
                                                  const Attributes& attributes) const = 0;
};

/// The registered operator, or nullptr.
const Operator* FindOperator(std::string_view name);

/// Every registered operator, by name.
std::vector<const Operator*> AllOperators();

/// Registers T for the life of the process; one a file, at namespace scope.
struct OperatorRegistration {
  explicit OperatorRegistration(std::unique_ptr<Operator> op);
};
#define HEDDLE_REGISTER_OPERATOR(T)                                        \
  static const ::heddle::graph::OperatorRegistration registration_of_##T { \
    std::make_unique<T>()                                                  \
  }

}  // namespace heddle::graph
