/// \file
/// Sums of gradients that the devices of a group make, for tests: cases, a worker that makes them, and
/// a reference that shares no code with what it checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/random.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/device/peer_memory.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/exchange/device_sums.h"

namespace heddle::runtime::testing {

/// One collective: its parts' shapes, and who has which contributions.
struct SumCase {
  std::vector<std::vector<TreeNode>> contributions;
  std::vector<Shape> parts;
  std::vector<int64_t> rows = {};
  std::vector<int> group = {};  ///< Ascending ranks, one a member; empty: all workers.
};

/// The value of a contribution: of unlike size, so that another order gives other bits.
inline double ValueOf(uint64_t key, const TreeNode& node, int64_t element) {
  const auto random = Philox(key, static_cast<uint64_t>(node.first() * 64 + node.level),
                             static_cast<uint64_t>(element));
  return std::ldexp(static_cast<double>(random[0]) / 0x1p31 - 1, static_cast<int>(random[1] % 12));
}

/// The sum over the numbers below (level, index) in tree order, by recursion; none: nothing is there.
template <typename T>
std::optional<T> SumBelow(const std::vector<TreeNode>& leaves,
                          const TreeNode& node,
                          uint64_t key,
                          int64_t element) {
  for (const TreeNode& leaf : leaves) {
    if (leaf == node) {
      return static_cast<T>(ValueOf(key, leaf, element));
    }
  }
  if (node.level == 0) {
    return std::nullopt;
  }
  const auto left =
      SumBelow<T>(leaves, {.level = node.level - 1, .index = 2 * node.index}, key, element);
  const auto right =
      SumBelow<T>(leaves, {.level = node.level - 1, .index = 2 * node.index + 1}, key, element);
  return left.has_value() && right.has_value() ? std::optional<T>(*left + *right)
                                               : (left.has_value() ? left : right);
}

/// Microbatches in runs, among members of which some may have none.
inline SumCase RandomCase(Random& random, int members, int64_t most) {
  SumCase sum;
  sum.contributions.resize(static_cast<size_t>(members));
  int64_t number = 0;
  do {
    const int64_t run = random.Between(1, 6);
    auto& nodes = sum.contributions[random.Below(static_cast<uint64_t>(members))];
    for (const TreeNode& node : CoverRange(number, number + run)) {
      nodes.push_back(node);
    }
    number += run;
  } while (random.Below(6) != 0 && number < static_cast<int64_t>(kMostAddends) - 6);
  if (random.Below(3) == 0) {
    const int64_t columns = random.Between(1, 9);
    int64_t all = 0;
    for (int i = 0; i < members; ++i) {
      sum.rows.push_back(random.Below(3) == 0 ? 0 : random.Between(1, most / 9 / members + 1));
      all += sum.rows.back();
    }
    sum.rows.back() += all == 0 ? 1 : 0;
    sum.parts = {{all == 0 ? 1 : all, columns}};
  } else {
    for (int64_t part = random.Between(1, 3); part > 0; --part) {
      sum.parts.push_back({random.Between(1, most)});
    }
  }
  return sum;
}

inline size_t PositionOf(int rank, const program::Instruction& instruction) {
  return static_cast<size_t>(std::ranges::find(instruction.group, rank) -
                             instruction.group.begin());
}

/// One worker's Program of the sums that it takes part in: nothing but kReduce. All workers take part
/// in the first.
inline program::Program ProgramOf(const std::vector<SumCase>& sums, int rank, DType dtype) {
  program::Program program;
  program.rank = rank;
  program.workers = static_cast<int>(sums.front().contributions.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const SumCase& sum = sums[i];
    if (!sum.group.empty() && std::ranges::find(sum.group, rank) == sum.group.end()) {
      continue;
    }
    for (size_t part = 0; part < sum.parts.size(); ++part) {
      program::Instruction reduce{.code = program::Code::kReduce,
                                  .tag = program::ReduceTag(static_cast<graph::ParameterId>(i)),
                                  .parameter = static_cast<graph::ParameterId>(i),
                                  .group = sum.group,
                                  .contributions = sum.contributions,
                                  .rows = sum.rows,
                                  .part = static_cast<int>(part),
                                  .parts = static_cast<int>(sum.parts.size())};
      for (int member = 0; sum.group.empty() && member < program.workers; ++member) {
        reduce.group.push_back(member);
      }
      Shape output = sum.parts[part];
      if (!sum.rows.empty()) {
        output[0] = sum.rows[PositionOf(rank, reduce)];
        program.pieces.push_back({.parameter = reduce.parameter,
                                  .box = {.offset = Shape(2, 0), .extent = sum.parts[part]}});
      }
      if (ElementCount(output) > 0) {
        reduce.outputs = {static_cast<program::SlotId>(program.slots.size())};
        program.slots.push_back({.type = {.dtype = dtype, .shape = output}});
      }
      program.instructions.push_back(std::move(reduce));
    }
  }
  return program;
}

/// What a worker does with the sums of its Program.
class Summer {
 public:
  Summer(const std::vector<SumCase>& sums,
         int rank,
         DType dtype,
         comm::Communicator& group,
         Device& device,
         size_t most_bytes = program::kMostSumBytes)
      : sums_(sums),
        rank_(rank),
        dtype_(dtype),
        program_(ProgramOf(sums, rank, dtype)),
        device_(device),
        device_sums_(program_, dtype, &group, device, most_bytes) {}

  DeviceSums& device_sums() { return device_sums_; }
  const program::Program& program() const { return program_; }

  /// Begins all sums on the device, one right after the other. `outputs`: what this worker gets.
  Status Make(uint64_t round, std::vector<at::Tensor>& outputs) {
    std::vector<SumPart> parts;
    int64_t offset = 0;
    for (const program::Instruction& instruction : program_.instructions) {
      offset = instruction.part == 0 ? 0 : offset;
      const Shape& shape = ShapeOf(instruction);
      SumPart part{.instruction = &instruction};
      for (const TreeNode& node : instruction.contributions[PositionOf(rank_, instruction)]) {
        part.values.push_back(Computed(shape, KeyOf(instruction, round), node, offset));
      }
      if (!instruction.outputs.empty()) {
        part.output =
            device_.Empty(program_.slots[static_cast<size_t>(instruction.outputs[0])].type);
        outputs.push_back(part.output);
      }
      offset += ElementCount(shape);
      parts.push_back(std::move(part));
      if (instruction.part + 1 == instruction.parts) {
        const Mark computed = device_.Computed();
        device_.Update([] {});  // Later compute, for which no sum waits.
        HEDDLE_RETURN_IF_ERROR(device_sums_.Make(std::exchange(parts, {}), computed));
      }
    }
    device_.Await(device_sums_.newest());
    return Status::Ok();
  }

  /// The same by the reference, in the order of the outputs.
  template <typename T>
  std::vector<std::vector<T>> Expected(uint64_t round) const {
    std::vector<std::vector<T>> all;
    int64_t offset = 0;
    for (const program::Instruction& instruction : program_.instructions) {
      offset = instruction.part == 0 ? 0 : offset;
      const Shape& shape = ShapeOf(instruction);
      std::vector<TreeNode> leaves;
      for (const auto& nodes : instruction.contributions) {
        leaves.insert(leaves.end(), nodes.begin(), nodes.end());
      }
      int64_t first = 0;
      int64_t count = ElementCount(shape);
      for (size_t i = 0; i < instruction.rows.size(); ++i) {
        first += i < PositionOf(rank_, instruction) ? instruction.rows[i] * shape[1] : 0;
        count = i == PositionOf(rank_, instruction) ? instruction.rows[i] * shape[1] : count;
      }
      if (!instruction.outputs.empty()) {
        std::vector<T>& sum = all.emplace_back();
        for (int64_t i = 0; i < count; ++i) {
          sum.push_back(*SumBelow<T>(leaves, {.level = 7, .index = 0}, KeyOf(instruction, round),
                                     offset + first + i));
        }
      }
      offset += ElementCount(shape);
    }
    return all;
  }

  static uint64_t KeyOf(const program::Instruction& instruction, uint64_t round) {
    return StreamKey(round, fmt::format("sum {}", instruction.parameter));
  }

 private:
  const Shape& ShapeOf(const program::Instruction& instruction) const {
    return sums_[static_cast<size_t>(instruction.parameter)]
        .parts[static_cast<size_t>(instruction.part)];
  }

  at::Tensor Computed(const Shape& shape, uint64_t key, const TreeNode& node, int64_t offset) {
    const graph::TensorType type{.dtype = dtype_, .shape = shape};
    return device_.Compute(
        [type, key, node, offset] {
          const at::Tensor value = at::empty(type.shape, ToScalarType(type.dtype));
          for (int64_t i = 0; i < value.numel(); ++i) {
            const double element = ValueOf(key, node, offset + i);
            if (type.dtype == DType::kF32) {
              value.data_ptr<float>()[i] = static_cast<float>(element);
            } else {
              value.data_ptr<double>()[i] = element;
            }
          }
          return Device::Outputs{value};
        },
        {&type})[0];
  }

  const std::vector<SumCase>& sums_;
  const int rank_;
  const DType dtype_;
  const program::Program program_;
  Device& device_;
  DeviceSums device_sums_;
};

}  // namespace heddle::runtime::testing
