/// \file
/// Appends slots and instructions to a Program.
#pragma once

#include <utility>

#include "engine/program/program.h"

namespace heddle::program {

/// A builder of one Program. Thread: one caller.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Program program) : program_(std::move(program)) {}

  SlotId NewSlot(graph::TensorId tensor, int microbatch, graph::TensorType type) {
    program_.slots.push_back({.tensor = tensor, .microbatch = microbatch, .type = std::move(type)});
    return static_cast<SlotId>(program_.slots.size()) - 1;
  }
  void Emit(Instruction instruction) { program_.instructions.push_back(std::move(instruction)); }
  /// Emits `left` += `right` and frees `right`.
  void Fold(SlotId left, SlotId right) {
    Emit({.code = Code::kFold, .inputs = {left, right}});
    Free(right);
  }
  void Free(SlotId slot) { Emit({.code = Code::kFree, .inputs = {slot}}); }

  Program& program() { return program_; }

 private:
  Program program_;
};

}  // namespace heddle::program
