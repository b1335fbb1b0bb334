#include "engine/program/memory.h"

#include <algorithm>
#include <bit>
#include <map>

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

namespace {

/// The largest sum of the bytes of live slots, as PeakSlotBytes counts them, of those whose bytes are
/// not left out: `bytes_of` is given each slot with the instruction that writes it.
template <typename BytesOf>
int64_t PeakOf(const Program& program, const BytesOf& bytes_of) {
  int64_t live = 0;
  int64_t peak = 0;
  int64_t reducing = 0;  // Freed by the program, but perhaps still read by a reduction.
  std::vector<int64_t> bytes(program.slots.size(), 0);
  std::vector<bool> reduced(program.slots.size(), false);
  for (const Instruction& instruction : program.instructions) {
    for (const SlotId output : instruction.outputs) {
      bytes[static_cast<size_t>(output)] = bytes_of(output, instruction);
      live += bytes[static_cast<size_t>(output)];
    }
    peak = std::max(peak, live + reducing);
    if (instruction.code == Code::kReduce) {
      for (const SlotId input : instruction.inputs) {
        reduced[static_cast<size_t>(input)] = true;
      }
    } else if (instruction.code == Code::kFree) {
      const auto slot = static_cast<size_t>(instruction.inputs.front());
      live -= bytes[slot];
      if (reduced[slot]) {
        reducing += bytes[slot];
      }
    } else if (instruction.code == Code::kVote) {
      reducing = 0;
    }
  }
  return peak;
}

int64_t SlotBytes(const Program& program, SlotId slot) {
  return program.slots[static_cast<size_t>(slot)].type.bytes();
}

/// The bytes of a slab that the output of `writes` takes; 0: it is in no slab.
int64_t PieceOf(const Program& program, SlotId output, const Instruction& writes) {
  const bool sums = writes.code == Code::kReduce && writes.rows.empty() && writes.parts == 1 &&
                    program.determinism == Determinism::kRelaxed;
  const int64_t bytes = SlotBytes(program, output);
  return (sums || writes.code == Code::kExchange) && bytes >= kLeastSharedBytes
             ? SharedPieceBytes(bytes)
             : 0;
}

/// Takes pieces as engine/runtime/shared_tensors does.
class Slabs {
 public:
  void Take(int64_t piece) {
    if (int& spare = free_[piece]; spare > 0) {
      --spare;
      return;
    }
    if (rest_ < piece) {
      rest_ = std::max(piece, kSharedSlabBytes);
      slabs_ += rest_;
    }
    rest_ -= piece;
    pieces_ += piece;
  }
  void Give(int64_t piece) { ++free_[piece]; }
  int64_t slabs() const { return slabs_; }
  int64_t pieces() const { return pieces_; }

 private:
  int64_t slabs_ = 0;
  int64_t pieces_ = 0;
  int64_t rest_ = 0;  ///< Of the last slab.
  std::map<int64_t, int> free_ = {};
};

}  // namespace

int64_t PeakSlotBytes(const Program& program) {
  return PeakOf(program, [&](SlotId slot, const Instruction& /*writes*/) {
    return SlotBytes(program, slot);
  });
}

int64_t SharedPieceBytes(int64_t bytes) {
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 4;
  return (bytes + step - 1) / step * step;
}

HostValues HostValuesOf(const Program& program) {
  Slabs slabs;
  std::map<SlotId, int64_t> pieces;  // Of live outputs.
  for (const Instruction& instruction : program.instructions) {
    for (const SlotId output : instruction.outputs) {
      if (const int64_t piece = PieceOf(program, output, instruction); piece > 0) {
        slabs.Take(piece);
        pieces.emplace(output, piece);
      }
    }
    if (instruction.code == Code::kFree) {
      if (const auto found = pieces.find(instruction.inputs.front()); found != pieces.end()) {
        slabs.Give(found->second);
        pieces.erase(found);
      }
    }
  }
  return {.own = PeakOf(program,
                        [&](SlotId slot, const Instruction& writes) {
                          return PieceOf(program, slot, writes) > 0 ? 0 : SlotBytes(program, slot);
                        }),
          .pieces = slabs.pieces(),
          .slabs = slabs.slabs()};
}

}  // namespace heddle::program
