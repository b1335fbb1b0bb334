/// \file
/// A graph with the placement of every tensor and the exchanges between them, alike for all members
/// of a group; plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/graph/sharding/sharding.h"

namespace heddle::graph {

enum class ExchangeForm : uint8_t {
  kSum,      ///< Addends of several members -> their sum, whole, at every member.
  kMax,      ///< Candidates of several members -> the largest, whole, at every member.
  kScatter,  ///< Addends -> their sum, each element at its holders.
  kGather,   ///< Ranges of a value -> the whole at every member.
  kSlice,    ///< A range of what the member has; nothing is sent.
  kFill,     ///< Addends -> addends of more members, zeros of those that had none; nothing is sent.
};

/// The form's name: "sum", "max", "scatter", "gather", "slice" or "fill".
std::string_view FormName(ExchangeForm form);

/// A change of placement that all members make together: `to` is a new tensor.
struct Exchange {
  ExchangeForm form = ExchangeForm::kSum;
  TensorId from = -1;
  TensorId to = -1;
  int dim = 0;                  ///< Of the ranges.
  std::vector<Range> sent;      ///< By position: what each member has of `from`.
  std::vector<Range> received;  ///< By position: what each member gets of `to`.
  NodeId reader = -1;           ///< The first node that needs it; -1: none does.

  friend bool operator==(const Exchange&, const Exchange&) = default;
};

/// A node or an exchange; the other is -1.
struct Step {
  NodeId node = -1;
  int exchange = -1;  ///< Index in `exchanges`.

  friend bool operator==(const Step&, const Step&) = default;
};

struct ShardedGraph {
  /// The logical graph. Tensors and nodes keep their ids. Outputs of exchanges and of operators'
  /// parts, and further parts, stand after them, in the order in which they arise; so `order`, and
  /// not the list of nodes, says what runs when.
  Graph graph;
  int members = 1;
  std::vector<Sharding> shardings;  ///< By tensor.
  std::vector<ShardingRule> rules;  ///< By node.
  std::vector<Division> divisions;  ///< By node.
  std::vector<Exchange> exchanges;  ///< In the order in which all members make them.
  std::vector<Step> order;
  /// By tensor that others than the members compute or read: the one that members send or receive.
  std::map<TensorId, TensorId> edges;
  /// Nodes, by their first output, that no rule divides as their inputs are: every member does all
  /// of their work on gathered tensors.
  std::vector<std::string> replicated;
};

}  // namespace heddle::graph
