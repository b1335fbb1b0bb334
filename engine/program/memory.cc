#include "engine/program/memory.h"

#include <algorithm>

namespace heddle::program {

int64_t StateBytes(const graph::Graph& graph, const Program& program) {
  constexpr int64_t kStoredRoles = 3;  // Master and two moments.
  int64_t bytes = 0;
  const auto add = [&](graph::ParameterId id, const Shape& held, const Shape& kept) {
    bytes += kStoredRoles * ElementCount(kept) * SizeOf(graph.master_dtype());
    const DType compute = graph.tensor(graph.parameter(id).compute).type.dtype;
    // A compute copy of the same type is where the master is.
    const int64_t copied = compute == graph.master_dtype() ? ElementCount(held) - ElementCount(kept)
                                                           : ElementCount(held);
    bytes += copied * SizeOf(compute);
  };
  for (const Piece& piece : program.pieces) {
    add(piece.parameter, piece.box.extent, KeptBox(piece).extent);
  }
  for (size_t i = 0; i < program.parameters.size() && program.pieces.empty(); ++i) {
    const Shape& shape = graph.parameter(program.parameters[i]).shape;
    add(program.parameters[i], shape, shape);
  }
  return bytes;
}

int64_t PeakSlotBytes(const Program& program) {
  int64_t live = 0;
  int64_t peak = 0;
  int64_t reducing = 0;  // Freed by the program, but perhaps still read by a reduction.
  std::vector<bool> reduced(program.slots.size(), false);
  const auto bytes = [&](SlotId slot) {
    return program.slots[static_cast<size_t>(slot)].type.bytes();
  };
  for (const Instruction& instruction : program.instructions) {
    for (const SlotId output : instruction.outputs) {
      live += bytes(output);
    }
    peak = std::max(peak, live + reducing);
    if (instruction.code == Code::kReduce) {
      for (const SlotId input : instruction.inputs) {
        reduced[static_cast<size_t>(input)] = true;
      }
    } else if (instruction.code == Code::kFree) {
      const SlotId slot = instruction.inputs.front();
      live -= bytes(slot);
      if (reduced[static_cast<size_t>(slot)]) {
        reducing += bytes(slot);
      }
    } else if (instruction.code == Code::kVote) {
      reducing = 0;
    }
  }
  return peak;
}

}  // namespace heddle::program
