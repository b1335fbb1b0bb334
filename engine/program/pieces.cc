#include "engine/program/pieces.h"

#include <algorithm>
#include <utility>

#include "engine/graph/sharding/sharding.h"
#include "engine/program/stages.h"

namespace heddle::program {

namespace {

// Splits pieces where `box` begins and ends, and adds `holder` to those in it.
void AddBox(const Box& box, int holder, std::vector<HeldPiece>& pieces) {
  std::vector<Box> rest = {box};
  const size_t count = pieces.size();
  for (size_t i = 0; i < count && !rest.empty(); ++i) {
    const std::optional<Box> common = Intersect(pieces[i].box, box);
    if (!common) {
      continue;
    }
    if (*common != pieces[i].box) {
      const std::vector<int> holders = pieces[i].holders;
      for (Box& outside : Subtract(pieces[i].box, *common)) {
        pieces.push_back({.box = std::move(outside), .holders = holders});
      }
      pieces[i].box = *common;
    }
    pieces[i].holders.push_back(holder);
    rest = Subtract(rest, *common);
  }
  for (Box& part : rest) {
    pieces.push_back({.box = std::move(part), .holders = {holder}});
  }
}

void Sort(std::vector<HeldPiece>& pieces) {
  for (HeldPiece& piece : pieces) {
    std::sort(piece.holders.begin(), piece.holders.end());
    piece.holders.erase(std::unique(piece.holders.begin(), piece.holders.end()),
                        piece.holders.end());
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const HeldPiece& a, const HeldPiece& b) { return a.box < b.box; });
}

// The first piece of each distinct box, and the stage that makes it.
struct Made {
  Box box;
  size_t pipeline = 0;
  int stage = 0;
};

Status AddMade(const graph::Parameter& parameter, const Made& made, std::vector<Made>& before) {
  for (const Made& other : before) {
    if (other.box == made.box) {
      return Status::Ok();
    }
    if (Intersect(other.box, made.box)) {
      return InvalidArgumentError(
          "plan: pipeline {} stage {} and pipeline {} stage {} cut parameter {} unlike: {} and {} "
          "overlap",
          other.pipeline, other.stage, made.pipeline, made.stage, parameter.name,
          ToString(other.box), ToString(made.box));
    }
  }
  before.push_back(made);
  return Status::Ok();
}

}  // namespace

std::vector<Box> Subtract(const Box& box, const Box& hole) {
  // For each dimension the part before the hole and the part after it, within the hole's extent of
  // the dimensions before.
  const std::optional<Box> common = Intersect(box, hole);
  if (!common.has_value()) {
    return {box};
  }
  std::vector<Box> rest;
  Box middle = box;
  for (size_t d = 0; d < box.offset.size(); ++d) {
    const int64_t low = common->offset[d];
    const int64_t high = low + common->extent[d];
    const int64_t end = middle.offset[d] + middle.extent[d];
    if (low > middle.offset[d]) {
      Box before = middle;
      before.extent[d] = low - middle.offset[d];
      rest.push_back(std::move(before));
    }
    if (high < end) {
      Box after = middle;
      after.offset[d] = high;
      after.extent[d] = end - high;
      rest.push_back(std::move(after));
    }
    middle.offset[d] = low;
    middle.extent[d] = high - low;
  }
  return rest;
}

std::vector<Box> Subtract(const std::vector<Box>& boxes, const Box& hole) {
  std::vector<Box> rest;
  for (const Box& box : boxes) {
    std::vector<Box> pieces = Subtract(box, hole);
    rest.insert(rest.end(), pieces.begin(), pieces.end());
  }
  return rest;
}

std::vector<std::optional<Box>> BoxesOf(const graph::Graph& graph,
                                        const Plan& plan,
                                        const Stage& stage,
                                        graph::ParameterId parameter) {
  const graph::Tensor& tensor = graph.tensor(graph.parameter(parameter).compute);
  const Shape& shape = graph.parameter(parameter).shape;
  std::vector<std::optional<Box>> boxes(stage.group.size(), WholeBox(shape));
  if (stage.layout < 0) {
    return boxes;
  }
  const graph::Layout& layout = plan.layouts[static_cast<size_t>(stage.layout)];
  const auto placed = layout.tensors.find(tensor.name);
  if (placed == layout.tensors.end()) {
    return boxes;
  }
  const graph::Sharding sharding = graph::ShardingOf(placed->second, shape, layout);
  for (size_t q = 0; q < boxes.size(); ++q) {
    boxes[q] = graph::BoxOf(sharding, shape, static_cast<int>(q));
  }
  return boxes;
}

std::vector<HeldPiece> PiecesOf(const std::vector<std::optional<Box>>& boxes) {
  std::vector<HeldPiece> pieces;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (boxes[i]) {
      AddBox(*boxes[i], static_cast<int>(i), pieces);
    }
  }
  Sort(pieces);
  return pieces;
}

std::vector<HeldPiece> PiecesOf(const graph::Graph& graph,
                                const Plan& plan,
                                graph::ParameterId parameter,
                                const std::vector<int>& segments) {
  std::vector<HeldPiece> pieces;
  if (plan.layouts.empty() && !segments.empty()) {
    pieces.push_back({.box = WholeBox(graph.parameter(parameter).shape), .holders = {}});
  }
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const int index : StagesOf(pipeline, segments)) {
      const Stage& stage = pipeline.stages[static_cast<size_t>(index)];
      if (plan.layouts.empty()) {
        pieces.front().holders.push_back(stage.worker());
        continue;
      }
      const std::vector<std::optional<Box>> boxes = BoxesOf(graph, plan, stage, parameter);
      for (size_t q = 0; q < boxes.size(); ++q) {
        if (boxes[q]) {
          AddBox(*boxes[q], stage.group[q], pieces);
        }
      }
    }
  }
  Sort(pieces);
  return pieces;
}

Status CheckPieces(const graph::Graph& graph, const Plan& plan) {
  if (plan.layouts.empty()) {
    return Status::Ok();
  }
  const std::vector<std::vector<int>> segments = ParameterSegments(graph);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    std::vector<Made> made;
    for (size_t i = 0; i < plan.pipelines.size(); ++i) {
      const Pipeline& pipeline = plan.pipelines[i];
      for (const int index : StagesOf(pipeline, segments[p])) {
        const Stage& stage = pipeline.stages[static_cast<size_t>(index)];
        for (const HeldPiece& piece :
             PiecesOf(BoxesOf(graph, plan, stage, static_cast<graph::ParameterId>(p)))) {
          HEDDLE_RETURN_IF_ERROR(AddMade(graph.parameters[p],
                                         {.box = piece.box, .pipeline = i, .stage = index}, made));
        }
      }
    }
  }
  return Status::Ok();
}

}  // namespace heddle::program
