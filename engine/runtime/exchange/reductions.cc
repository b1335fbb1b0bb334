#include "engine/runtime/exchange/reductions.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "base/thread.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/exchange/exchange_layout.h"

namespace heddle::runtime {

using program::Instruction;

namespace {

comm::CollectiveOptions OptionsOf(const Instruction& instruction) {
  return {.group = instruction.group, .tag = instruction.tag, .deadline = {}};
}

}  // namespace

Reductions::Reductions(const program::Program& program,
                       DType master,
                       comm::Communicator* group,
                       Device& device,
                       MakeBuffer make_buffer)
    : program_(program),
      master_(master),
      group_(group),
      device_(device),
      make_buffer_(std::move(make_buffer)),
      device_sums_(program, master, group, device),
      thread_("reductions") {
  thread_.Push([this] {
    PreferLongSlices();
    return device_sums_.Agree();
  });
}

Reductions::Output Reductions::Begin(const Instruction& instruction,
                                     std::span<const at::Tensor> inputs,
                                     const graph::TensorType* type) {
  if (instruction.part == 0) {  // Of a step that ended between two parts.
    joined_.clear();
    on_device_.clear();
  }
  if (agreed_ && device_sums_.Makes(instruction)) {
    at::Tensor output = type == nullptr ? at::Tensor() : device_.Empty(*type);
    BeginOnDevice(instruction, inputs, output);
    return {.tensor = std::move(output), .on_device = true};
  }
  Part part{.instruction = &instruction};
  // Exact sums, and those of which each holder keeps some rows, are made beside the output.
  const bool in_place = !is_exact() && instruction.rows.empty() && instruction.parts == 1;
  if (type != nullptr) {
    part.output = in_place ? make_buffer_(*type) : device_.HostBuffer(*type);
  }
  for (const at::Tensor& input : inputs) {
    part.mine.push_back(Fetch(instruction, input, in_place ? part.output : at::Tensor()));
  }
  at::Tensor output = part.output;
  joined_.push_back(std::move(part));
  if (instruction.part + 1 == instruction.parts) {
    thread_.Push([this, parts = std::exchange(joined_, {})] { return Make(parts); });
  }
  return {.tensor = std::move(output)};
}

void Reductions::BeginOnDevice(const Instruction& instruction,
                               std::span<const at::Tensor> inputs,
                               at::Tensor output) {
  SumPart part{.instruction = &instruction, .values = {}, .output = std::move(output)};
  for (const at::Tensor& input : inputs) {
    const graph::TensorType type{.dtype = master_,
                                 .shape = Shape(input.sizes().begin(), input.sizes().end())};
    part.values.push_back(
        input.is_contiguous()
            ? input
            : device_.Compute([input] { return Device::Outputs{input.contiguous()}; }, {&type})[0]);
  }
  on_device_.push_back(std::move(part));
  if (instruction.part + 1 == instruction.parts) {
    thread_.Push([this, parts = std::exchange(on_device_, {}), computed = device_.Computed()] {
      return device_sums_.Make(parts, computed);
    });
  }
}

// From a device of another memory to where the collective reads it without a copy: in the sum that is
// made in place, `sum`, or where the other members reach it.
Copied Reductions::Fetch(const Instruction& instruction,
                         const at::Tensor& input,
                         const at::Tensor& sum) {
  if (device_.is_host() || is_exact() || instruction.parts > 1) {
    return device_.Download(input);
  }
  at::Tensor target =
      sum.defined() ? sum.view(input.sizes())
                    : make_buffer_({.dtype = master_,
                                    .shape = Shape(input.sizes().begin(), input.sizes().end())});
  const Mark mark = device_.DownloadInto(input, target);
  return {.tensor = std::move(target), .mark = mark};
}

Status Reductions::Drain() {
  HEDDLE_RETURN_IF_ERROR(thread_.Drain());
  agreed_ = true;
  device_.Await(device_sums_.newest());
  return Status::Ok();
}

Status Reductions::Make(const std::vector<Part>& parts) {
  std::vector<std::vector<std::span<const std::byte>>> values(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Copied& value : parts[i].mine) {
      HEDDLE_RETURN_IF_ERROR(value.mark.Wait(After(kLongestWait)));
      values[i].emplace_back(BytesOf(value.tensor));
    }
  }
  if (parts.size() > 1) {
    return MakeJoint(parts, values);
  }
  const Part& part = parts.front();
  if (!part.instruction->rows.empty()) {
    return Scatter(part, values.front());
  }
  return Sum(*part.instruction, values.front(), BytesOf(part.output));
}

Status Reductions::MakeJoint(const std::vector<Part>& parts,
                             const std::vector<std::vector<std::span<const std::byte>>>& values) {
  size_t nodes = 0;  // Of which this worker has values.
  size_t bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    nodes = std::max(nodes, values[i].size());
    bytes += BytesOf(parts[i].output).size();
  }
  std::vector<Bytes> packed(nodes, Bytes(bytes));
  size_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t size = BytesOf(parts[i].output).size();
    for (size_t node = 0; node < nodes; ++node) {
      const std::span<std::byte> place = std::span(packed[node]).subspan(offset, size);
      if (node < values[i].size()) {
        std::ranges::copy(values[i][node], place.begin());
      } else {  // Another member has added what this one has.
        FillNeutral(place, master_, comm::ReduceOp::kSum);
      }
    }
    offset += size;
  }
  Bytes sum(bytes);
  HEDDLE_RETURN_IF_ERROR(Sum(*parts.front().instruction, {packed.begin(), packed.end()}, sum));
  std::span<const std::byte> rest = sum;
  for (const Part& part : parts) {
    const std::span<std::byte> output = BytesOf(part.output);
    std::ranges::copy(rest.first(output.size()), output.begin());
    rest = rest.subspan(output.size());
  }
  return Status::Ok();
}

Status Reductions::Scatter(const Part& part, std::vector<std::span<const std::byte>> values) {
  const Instruction& instruction = *part.instruction;
  const Box& box = FindPiece(program_, instruction.parameter, instruction.piece)->box;
  const graph::TensorType type{.dtype = master_, .shape = box.extent};
  std::vector<int64_t> counts;
  for (const int64_t rows : instruction.rows) {
    counts.push_back(rows * (ElementCount(type.shape) / type.shape[0]));
  }
  const std::span<std::byte> own =
      part.output.defined() ? BytesOf(part.output) : std::span<std::byte>();
  if (is_exact()) {
    return group_->ReduceScatterTree({.nodes = instruction.contributions}, values, own, counts,
                                     master_, OptionsOf(instruction));
  }
  Bytes nothing;
  if (values.empty()) {  // Another member has added what this one has.
    nothing.resize(static_cast<size_t>(type.bytes()));
    FillNeutral(nothing, master_, comm::ReduceOp::kSum);
    values.emplace_back(nothing);
  }
  return group_->ReduceScatter(values[0], own, counts, master_, comm::ReduceOp::kSum,
                               OptionsOf(instruction));
}

Status Reductions::Sum(const Instruction& instruction,
                       const std::vector<std::span<const std::byte>>& values,
                       std::span<std::byte> output) {
  if (is_exact()) {
    return group_->ReduceTree({.nodes = instruction.contributions}, values, output, master_,
                              OptionsOf(instruction));
  }
  if (values.empty()) {  // Another member has added what this one has.
    FillNeutral(output, master_, comm::ReduceOp::kSum);
  } else if (values[0].data() != output.data()) {
    std::ranges::copy(values[0], output.begin());
  }
  return group_->AllReduce(output, master_, comm::ReduceOp::kSum, OptionsOf(instruction));
}

}  // namespace heddle::runtime
