/// \file
/// How a group of workers lays a graph's tensors out: given for parameters, and for activations
/// and their gradients where they should have one placement for all readers. Complete
/// (complete.h) derives the other tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/graph/operator.h"

namespace heddle::graph {

/// The members' shares of a dimension, by position in the group, in units. A dimension of any
/// extent is cut at UnitEdge(items, sum of all units, ·).
struct Cut {
  std::vector<int> units;  ///< >= 0 each: a share may be empty.

  friend bool operator==(const Cut&, const Cut&) = default;
};

/// The placement of one tensor.
struct Placed {
  Placement placement;  ///< Replicate, Shard or, for parameters, Cover.
  int cut = 0;          ///< For Shard and Cover: index in Layout::cuts.
  /// For Cover: the units that are cut, to which those of this tensor belong (query heads, of
  /// which several read one key/value head).
  int64_t covered = 0;

  friend bool operator==(const Placed&, const Placed&) = default;
};

struct Layout {
  std::vector<Cut> cuts;                  ///< Several: shares of their own for some segments.
  std::map<std::string, Placed> tensors;  ///< By name; parameters that are not there are whole.

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// The number of members; 1 when nothing is cut.
int MembersOf(const Layout& layout);

/// Checks a layout of a graph: its cuts have one number of members and one sum, which is a power of
/// two when the job is `exact`; tensors exist and may be placed; a cut parameter has whole units.
/// Errors: kInvalidArgument, naming the cut or the tensor.
Status ValidateLayout(const Graph& graph, const Layout& layout, bool exact);

}  // namespace heddle::graph
