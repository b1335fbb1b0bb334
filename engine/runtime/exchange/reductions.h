/// \file
/// The gradient sums of one worker's step: collectives that one thread makes in order while the
/// caller computes. Exact sums are made on the devices where these can (device_sums.h), else in the
/// host's memory. Small sums of one segment share a collective: they are packed and unpacked here.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/program/program.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/exchange/device_sums.h"
#include "engine/runtime/exchange/task_queue.h"

namespace heddle::runtime {

/// The reductions of a Program. Thread: one caller at a time.
class Reductions {
 public:
  /// Makes an uninitialised contiguous tensor in the host's memory.
  using MakeBuffer = std::function<at::Tensor(const graph::TensorType& type)>;

  /// `program`, `group` and `device` outlive this; `master`: the type of gradients. `make_buffer`
  /// makes memory in which a sum is made in place, and that other members reach.
  Reductions(const program::Program& program,
             DType master,
             comm::Communicator* group,
             Device& device,
             MakeBuffer make_buffer);
  Reductions(const Reductions&) = delete;
  Reductions& operator=(const Reductions&) = delete;

  /// A sum's output; not defined: the worker keeps none of it.
  struct Output {
    at::Tensor tensor;
    bool on_device = false;  ///< Else in the host's memory.
  };
  /// Begins the sum of a kReduce, whose inputs are `inputs` on the device, and waits for nothing; the
  /// sums of one collective begin with the last of them. Returns its output, of `type`, which is
  /// complete after Drain, on the device for compute that is queued from then on; null `type`: the
  /// worker keeps none. `instruction` is one of the program's. Thread: the one that computes.
  Output Begin(const program::Instruction& instruction,
               std::span<const at::Tensor> inputs,
               const graph::TensorType* type);
  /// Waits until all sums that have begun are complete; the first error, after which the others are
  /// dropped. Thread: the one that computes.
  Status Drain();

 private:
  struct Part {
    const program::Instruction* instruction = nullptr;
    at::Tensor output = {};
    std::vector<Copied> mine = {};
  };

  void BeginOnDevice(const program::Instruction& instruction,
                     std::span<const at::Tensor> inputs,
                     at::Tensor output);
  Copied Fetch(const program::Instruction& instruction,
               const at::Tensor& input,
               const at::Tensor& sum);
  Status Make(const std::vector<Part>& parts);
  Status MakeJoint(const std::vector<Part>& parts,
                   const std::vector<std::vector<std::span<const std::byte>>>& values);
  Status Scatter(const Part& part, std::vector<std::span<const std::byte>> values);
  Status Sum(const program::Instruction& instruction,
             const std::vector<std::span<const std::byte>>& values,
             std::span<std::byte> output);
  bool is_exact() const { return program_.determinism == program::Determinism::kExact; }

  const program::Program& program_;
  const DType master_;
  comm::Communicator* const group_;
  Device& device_;
  const MakeBuffer make_buffer_;
  std::vector<Part> joined_;        ///< Of a collective whose last part is to come.
  std::vector<SumPart> on_device_;  ///< The same, of one that the devices make.
  /// A step has ended, so that all members know what they have agreed on for the steps behind it.
  bool agreed_ = false;
  DeviceSums device_sums_;
  TaskQueue thread_;  // Last: its thread ends before what its tasks use.
};

}  // namespace heddle::runtime
