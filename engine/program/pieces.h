/// \file
/// What each worker has of each parameter under a plan, as boxes, and the pieces that these make of
/// it: the common refinement of all boxes. A worker has each piece wholly or not at all, so that the
/// workers that have it can sum and apply its gradient together.
#pragma once

#include <optional>
#include <vector>

#include "engine/program/plan.h"

namespace heddle::program {

/// The part of a parameter that each member of a stage has, by position; nothing: no part of it. All
/// have all of it if the stage is one worker or its layout does not place it. Precondition: the
/// stage has a segment that uses the parameter.
std::vector<std::optional<Box>> BoxesOf(const graph::Graph& graph,
                                        const Plan& plan,
                                        const Stage& stage,
                                        graph::ParameterId parameter);

/// A piece of a parameter, and the ranks that have it, ascending.
struct HeldPiece {
  Box box = {};
  std::vector<int> holders = {};
};

/// The pieces of a parameter, by ascending offset. `segments` are those that use it, as by
/// ParameterSegments.
std::vector<HeldPiece> PiecesOf(const graph::Graph& graph,
                                const Plan& plan,
                                graph::ParameterId parameter,
                                const std::vector<int>& segments);

/// The pieces that these boxes make, by ascending offset, with the indices of the boxes that each is
/// in as holders.
std::vector<HeldPiece> PiecesOf(const std::vector<std::optional<Box>>& boxes);

/// Checks that the pieces that any two stages make of a parameter are equal or disjoint, so that
/// their gradients can be added. Errors: kInvalidArgument naming the parameter and the stages.
Status CheckPieces(const graph::Graph& graph, const Plan& plan);

/// What is left of `box` without `hole`, as disjoint boxes.
std::vector<Box> Subtract(const Box& box, const Box& hole);
std::vector<Box> Subtract(const std::vector<Box>& boxes, const Box& hole);

}  // namespace heddle::program
