/// \file
/// The plan whose programs faults are planted in, and how.
#pragma once

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/program.h"
#include "tests/engine_program/graphs.h"

namespace heddle::testing {

using Programs = std::vector<program::Program>;

/// Two stages for microbatches 0 … 2, one worker for 3 … 4, one idle; of ChainGraph(4, tied).
/// Parameters: 0 tied, 1 linear1, 2 linear2.
inline program::Plan ExamplePlan() {
  return PlanOf(4, {PipelineOfCuts({0, 2, 4}, 0, 0, 3), PipelineOfCuts({0, 4}, 2, 3, 2)});
}

/// The first instruction of the code, from a place on.
inline size_t Find(const program::Program& program, program::Code code, size_t from = 0) {
  for (size_t i = from; i < program.instructions.size(); ++i) {
    if (program.instructions[i].code == code) {
      return i;
    }
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

inline program::Instruction& At(program::Program& program, program::Code code) {
  return program.instructions[Find(program, code)];
}

inline void Insert(program::Program& program,
                   size_t index,
                   const program::Instruction& instruction) {
  program.instructions.insert(program.instructions.begin() + static_cast<std::ptrdiff_t>(index),
                              instruction);
  program.vote_index += index <= program.vote_index ? 1 : 0;
}

}  // namespace heddle::testing
