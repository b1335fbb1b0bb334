/// \file
/// The choice of a node's rule by the exchanges that it needs.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/graph/sharding/sharded_graph.h"

namespace heddle::graph {

/// A tensor that a node reads, and the forms in which members have it already: first as it was
/// placed or computed, then as exchanges have made it.
struct Operand {
  TensorType type;
  bool parameter = false;
  std::vector<Sharding> versions;
};

/// A tensor that a node computes, and how it should come out.
struct Target {
  TensorType type;
  std::optional<Sharding> placed;     ///< As the layout places it.
  std::optional<Sharding> parameter;  ///< A weight gradient: as its parameter is placed.
};

/// How a wanted form of a tensor is had.
struct Way {
  std::optional<ExchangeForm> form;  ///< Nothing: a version is as wanted.
  size_t version = 0;                ///< The version that is taken, or exchanged.
  bool through_whole = false;        ///< The whole is made first, and sliced.
  int64_t bytes = 0;                 ///< A member's traffic, as for a large group.
};

/// The way to `wanted` with the fewest bytes; nothing: a value is not made partial, nor are addends
/// made fewer.
std::optional<Way> WayTo(const Operand& operand, const Sharding& wanted);

/// What a choice costs, in the order in which choices are compared.
struct Price {
  int misplaced = 0;   ///< Parameters, and gradients of cut ones, not used as they are placed.
  int64_t bytes = 0;   ///< Exchanged.
  double largest = 1;  ///< Share of the work that the most loaded member does.
  size_t rule = 0;     ///< Its index.
  friend auto operator<=>(const Price&, const Price&) = default;
};

struct Choice {
  ShardingRule rule;
  Division division;
  std::vector<Sharding> inputs;  ///< What the rule reads; WayTo says how each is had.
  std::vector<Sharding> outputs;
  Price price;
};

/// The rule of least price for these operands and targets, and the division of the work. There is
/// always one: everything is made whole, and every member does all of the work.
Choice Choose(const Operator& op,
              const Attributes& attributes,
              std::span<const Operand> operands,
              std::span<const Target> targets);

}  // namespace heddle::graph
