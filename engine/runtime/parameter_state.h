/// \file
/// A worker's share of the state: master, two Adam moments and the compute copy of every parameter
/// it holds. Others see it as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/program/state.h"

namespace heddle::runtime {

/// Thread: one caller at a time.
class ParameterState {
 public:
  struct Held;  ///< Tensors of one parameter (parameter_tensors.h).

  explicit ParameterState(const graph::Graph& graph);
  ~ParameterState();
  ParameterState(ParameterState&&) noexcept;
  ParameterState& operator=(ParameterState&&) noexcept;

  /// Takes the parameters of `wanted` that `other` holds, sharing memory with it: a state that is
  /// built beside the one it will replace. Neither may be trained while both exist.
  void Share(const ParameterState& other, const std::vector<graph::ParameterId>& wanted);
  /// Makes room for exactly `parameters` (ascending): those already held keep their values, new
  /// ones are zero, others are dropped.
  void Hold(const std::vector<graph::ParameterId>& parameters);
  bool Holds(graph::ParameterId parameter) const;
  std::vector<graph::ParameterId> parameters() const;

  /// Step 0: initial weights from (seed, name, element); zero moments.
  void Initialize(uint64_t seed);
  /// Elements of one role, in the master's element type, row-major. Precondition: Holds(parameter).
  std::span<std::byte> BytesOf(graph::ParameterId parameter, program::StateRole role);
  /// Recomputes the compute copies from the masters: after bytes were written.
  void Refresh();
  /// XXH3 of a parameter's master and moments: equal on all holders.
  uint64_t Digest(graph::ParameterId parameter) const;

  Held& held(graph::ParameterId parameter);

 private:
  const graph::Graph* graph_;
  // By parameter; nullptr: not held. Shared only between the states that Share joined.
  std::vector<std::shared_ptr<Held>> held_;
};

}  // namespace heddle::runtime
