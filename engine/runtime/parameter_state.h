/// \file
/// A worker's share of the state: master, two Adam moments and the compute copy of every parameter
/// it holds, on its device. Others read and write it as bytes, by boxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/program/state.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// Thread: one caller at a time.
class ParameterState {
 public:
  struct Held;  ///< Tensors of one parameter (parameter_tensors.h).

  /// Both outlive it.
  ParameterState(const graph::Graph& graph, Device& device);
  ~ParameterState();
  ParameterState(ParameterState&&) noexcept;
  ParameterState& operator=(ParameterState&&) noexcept;

  /// Takes the parameters of `wanted` that `other`, on the same device, holds, sharing memory with
  /// it: a state that is
  /// built beside the one it will replace. Neither may be trained while both exist.
  void Share(const ParameterState& other, const std::vector<graph::ParameterId>& wanted);
  /// Makes room for exactly `parameters` (ascending): those already held keep their values, new
  /// ones are zero, others are dropped.
  void Hold(const std::vector<graph::ParameterId>& parameters);
  bool Holds(graph::ParameterId parameter) const;
  std::vector<graph::ParameterId> parameters() const;

  /// Step 0: initial weights from (seed, name, element); zero moments.
  void Initialize(uint64_t seed);
  /// Copies the elements of `box`, in the master's element type and row-major, into `out`, after
  /// all that was queued on the device. Waits for it. Precondition, of the next two as well:
  /// Holds(parameter); the box lies in the parameter, and the bytes are as many as its elements
  /// have. Errors: the device's.
  Status Read(graph::ParameterId parameter,
              program::StateRole role,
              const Box& box,
              std::span<std::byte> out) const;
  /// Makes them those of `in`, which may be InPlace. Errors: the device's.
  Status Write(graph::ParameterId parameter,
               program::StateRole role,
               const Box& box,
               std::span<const std::byte> in);
  /// Where the elements of `box` lie, for those who spare themselves the copy: what is written
  /// there is written. Empty: on another device than the host, or among other elements.
  std::span<std::byte> InPlace(graph::ParameterId parameter,
                               program::StateRole role,
                               const Box& box) const;
  /// Recomputes the compute copies from the masters: after bytes were written.
  void Refresh();
  /// XXH3 of a parameter's master and moments: equal on all holders. Errors: the device's.
  Result<uint64_t> Digest(graph::ParameterId parameter) const;

  Held& held(graph::ParameterId parameter) const;

 private:
  const at::Tensor& TensorOf(graph::ParameterId parameter, program::StateRole role) const;

  const graph::Graph* graph_;
  Device* device_;
  // By parameter; nullptr: not held. Shared only between the states that Share joined.
  std::vector<std::shared_ptr<Held>> held_;
};

}  // namespace heddle::runtime
