/// \file
/// Which part of each piece's optimizer state a worker keeps (ZeRO stage 1; Rajbhandari et al., "ZeRO:
/// Memory Optimizations Toward Training Trillion Parameter Models", 2020). Under a plan that divides
/// the optimizer, each holder of a piece of a matrix keeps the master and the moments of a run of its
/// rows, and updates that run alone. All holders have the compute copy of the whole piece; they gather
/// it from each other before they use it.
///
/// The runs are made of slices: a piece is cut into graph::AdamW::slices runs of rows, whose norms are
/// summed apart under any plan. So whether a plan divides the optimizer changes no bit of the norm.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/sharding/sharded_graph.h"
#include "engine/program/pieces.h"

namespace heddle::program {

/// The number of slices of a piece with this box: AdamW::slices of a matrix, 1 of anything else.
int64_t SlicesOf(const graph::Graph& graph, const Box& piece);

/// The first row of slice `slice` of `rows` rows that are cut into `slices`, for a slice in
/// 0..slices. Slices may be empty.
int64_t SliceEdge(int64_t rows, int64_t slices, int64_t slice);

/// The rows of a piece with this box that each of `holders` keeps where the optimizer is divided, by
/// position, as ranges of the piece's own rows; empty: every holder keeps all of it.
std::vector<graph::Range> RowsByHolder(const graph::Graph& graph,
                                       const Box& piece,
                                       int64_t holders);

/// The rows that each holder of a piece keeps, by position in its holders, as ranges of the piece's
/// own rows; together all rows, each once. Empty: every holder keeps all of it.
std::vector<graph::Range> KeptRows(const graph::Graph& graph,
                                   const Plan& plan,
                                   const HeldPiece& piece);

/// The rows `rows` of a piece. Precondition: the piece has a dimension.
Box RowsOf(const Box& piece, const graph::Range& rows);

/// The parts of a parameter whose master and moments are kept together, by ascending offset, and the
/// ranks that keep each, ascending. `segments` are those that use it, as by ParameterSegments. Under
/// a plan that does not divide the optimizer they are the pieces.
std::vector<HeldPiece> KeptPiecesOf(const graph::Graph& graph,
                                    const Plan& plan,
                                    graph::ParameterId parameter,
                                    const std::vector<int>& segments);

/// By parameter, the number of its first kept piece among those of all parameters; last, the number
/// of all. Where nothing is cut, piece i is parameter i.
std::vector<int32_t> FirstKeptPieces(const graph::Graph& graph, const Plan& plan);

}  // namespace heddle::program
