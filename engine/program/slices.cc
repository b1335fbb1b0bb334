#include "engine/program/slices.h"

#include <algorithm>
#include <utility>

#include "engine/program/stages.h"

namespace heddle::program {

int64_t SlicesOf(const graph::Graph& graph, const Box& piece) {
  return piece.extent.size() > 1 ? graph.optimizer.slices : 1;
}

int64_t SliceEdge(int64_t rows, int64_t slices, int64_t slice) {
  return rows / slices * slice + rows % slices * slice / slices;
}

std::vector<graph::Range> RowsByHolder(const graph::Graph& graph,
                                       const Box& piece,
                                       int64_t holders) {
  const int64_t slices = SlicesOf(graph, piece);
  if (holders < 2 || slices < 2) {
    return {};
  }
  std::vector<graph::Range> kept;
  for (int64_t i = 0; i < holders; ++i) {
    const auto edge = [&](int64_t holder) {
      return SliceEdge(piece.extent[0], slices, SliceEdge(slices, holders, holder));
    };
    kept.push_back({.begin = edge(i), .end = edge(i + 1)});
  }
  return kept;
}

std::vector<graph::Range> KeptRows(const graph::Graph& graph,
                                   const Plan& plan,
                                   const HeldPiece& piece) {
  return plan.divides_optimizer ? RowsByHolder(graph, piece.box, std::ssize(piece.holders))
                                : std::vector<graph::Range>();
}

Box RowsOf(const Box& piece, const graph::Range& rows) {
  Box box = piece;
  box.offset[0] += rows.begin;
  box.extent[0] = rows.end - rows.begin;
  return box;
}

std::vector<HeldPiece> KeptPiecesOf(const graph::Graph& graph,
                                    const Plan& plan,
                                    graph::ParameterId parameter,
                                    const std::vector<int>& segments) {
  std::vector<HeldPiece> pieces = PiecesOf(graph, plan, parameter, segments);
  if (!plan.divides_optimizer) {
    return pieces;
  }
  std::vector<HeldPiece> kept;
  for (HeldPiece& piece : pieces) {
    const std::vector<graph::Range> rows = KeptRows(graph, plan, piece);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].empty()) {
        kept.push_back({.box = RowsOf(piece.box, rows[i]), .holders = {piece.holders[i]}});
      }
    }
    if (rows.empty()) {
      kept.push_back(std::move(piece));
    }
  }
  std::ranges::sort(kept, {}, &HeldPiece::box);
  return kept;
}

std::vector<int32_t> FirstKeptPieces(const graph::Graph& graph, const Plan& plan) {
  const std::vector<std::vector<int>> segments = ParameterSegments(graph);
  std::vector<int32_t> first = {0};
  for (size_t p = 0; p < segments.size(); ++p) {
    const size_t pieces =
        plan.layouts.empty() && !plan.divides_optimizer
            ? 1
            : KeptPiecesOf(graph, plan, static_cast<graph::ParameterId>(p), segments[p]).size();
    first.push_back(first.back() + static_cast<int32_t>(pieces));
  }
  return first;
}

}  // namespace heddle::program
