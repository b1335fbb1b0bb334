/// \file
/// A plan into whose programs tests plant faults, and helpers to do so.
#pragma once

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/program.h"
#include "tests/engine_program/graphs.h"

namespace heddle::testing {

using Programs = std::vector<program::Program>;

/// A plan for ChainGraph(4, tied): two stages for microbatches 0 to 2, one worker for 3 and 4, one
/// idle worker. Parameters: 0 tied, 1 linear1, 2 linear2.
inline program::Plan ExamplePlan() {
  return PlanOf(4, {PipelineOfCuts({0, 2, 4}, 0, 0, 3), PipelineOfCuts({0, 4}, 2, 3, 2)});
}

/// The index of the first instruction with this code, from the index `from` on.
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

inline void Remove(program::Program& program, size_t index) {
  program.instructions.erase(program.instructions.begin() + static_cast<std::ptrdiff_t>(index));
  program.vote_index -= index < program.vote_index ? 1 : 0;
}

}  // namespace heddle::testing
