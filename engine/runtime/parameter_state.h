/// \file
/// A worker's share of the state, on its device: the compute copy of its box of each parameter that it
/// holds, and of that box, or of the parts of it that the worker keeps, the master and the two Adam
/// moments. Saves, recoveries and exchanges read and write it as bytes, by boxes of the whole
/// parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/program/program.h"
#include "engine/program/state.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// The state of the held parameters. Operations on the device are queued there, in the order of the
/// calls. Thread: one caller at a time.
class ParameterState {
 public:
  struct Held;  ///< The tensors of one parameter (parameter_tensors.h).
  struct Kept;  ///< Those of a part of it that is kept (parameter_tensors.h).
  /// What to hold of parameters that are not held whole, and of that what to keep; not named: all.
  struct Parts {
    std::map<graph::ParameterId, Box> held = {};
    std::map<graph::ParameterId, std::vector<Box>> kept = {};
  };

  /// Creates a state that holds no parameter. `graph` and `device` outlive it.
  ParameterState(const graph::Graph& graph, Device& device);
  ~ParameterState();
  ParameterState(ParameterState&&) noexcept;
  ParameterState& operator=(ParameterState&&) noexcept;

  /// Holds the parameters of `wanted` as `other` does, by the same tensors; those that `other` does
  /// not hold are not held. For a state that is built beside `other`, on the same device, and will
  /// replace it. Neither may be trained while both exist.
  void Share(const ParameterState& other, const std::vector<graph::ParameterId>& wanted);
  /// Returns true if both hold the parameter by the same tensors.
  bool Shares(const ParameterState& other, graph::ParameterId parameter) const;
  /// Holds exactly `parameters`, which are ascending, and keeps their `parts`: boxes that lie in what
  /// is held of the parameter, which lies in the parameter, and are disjoint. What is held already,
  /// in the same parts, keeps its values, what is new is zero, and the rest is freed. Errors:
  /// kResourceExhausted (the device has no memory left: the state is not to be used).
  Status Hold(const std::vector<graph::ParameterId>& parameters, const Parts& parts);
  /// Holds and keeps exactly all of `parameters`.
  Status Hold(const std::vector<graph::ParameterId>& parameters) {
    return Hold(parameters, Parts{});
  }
  /// Holds and keeps exactly what the worker of `program` has (program::HeldBox, KeptBox).
  Status Hold(const program::Program& program);
  /// Returns true if the parameter is held.
  bool Holds(graph::ParameterId parameter) const;
  /// Returns the part of the parameter that is held. Precondition: Holds(parameter).
  const Box& BoxOf(graph::ParameterId parameter) const;
  /// Returns the parts whose master and moments are kept. Precondition: Holds(parameter).
  std::vector<Box> KeptOf(graph::ParameterId parameter) const;
  /// Returns true if what other workers keep was gathered into the compute copy since the last change of
  /// the state; false also where they keep nothing. Precondition: Holds(parameter).
  bool IsGathered(graph::ParameterId parameter) const;
  /// Sets what IsGathered returns where others keep a part. All holders set it alike.
  void SetGathered(graph::ParameterId parameter, bool gathered);
  /// Returns the held parameters, ascending.
  std::vector<graph::ParameterId> parameters() const;

  /// Sets all held parameters to their values at step 0: initial weights, which depend on the
  /// seed, the parameter's name and the element's place alone, and zero moments. Errors:
  /// kResourceExhausted.
  Status Initialize(uint64_t seed);
  /// Copies the elements of `box`, in the master's element type and row-major, into `out`, after
  /// all compute that is queued on the device, and waits for the copy. Precondition:
  /// Holds(parameter), the box lies in one of KeptOf(parameter), and `out` has as many bytes as the box's
  /// elements. Errors: the device's.
  Status Read(graph::ParameterId parameter,
              program::StateRole role,
              const Box& box,
              std::span<std::byte> out) const;
  /// Sets the elements of `box` to `in`, in the form of Read, and waits until `in` is read. `in`
  /// may be the bytes of InPlace. The compute copy does not change before Refresh. Precondition: as
  /// for Read. Errors: the device's.
  Status Write(graph::ParameterId parameter,
               program::StateRole role,
               const Box& box,
               std::span<const std::byte> in);
  /// Returns the memory of the elements of `box`, so that callers read and write them without a
  /// copy. Empty if the device is not the host, or the box is not one of KeptOf(parameter) or does
  /// not lie in one piece: then Read and Write are needed. Precondition: as for Read.
  std::span<std::byte> InPlace(graph::ParameterId parameter,
                               program::StateRole role,
                               const Box& box) const;
  /// Recomputes the compute copies from the masters, after Write or writes through InPlace; what others
  /// keep is to be gathered again.
  void Refresh();
  /// Returns the XXH3 hash of the elements of `box` in a parameter's master and moments, which is
  /// equal on all workers that keep it. Precondition: as for Read. Errors: the device's.
  Result<uint64_t> Digest(graph::ParameterId parameter, const Box& box) const;

  /// Returns the tensors of a parameter, for the files of engine/runtime. Precondition:
  /// Holds(parameter).
  Held& held(graph::ParameterId parameter) const;
  /// Returns views of the elements of `box` of those tensors. Precondition: as for Read.
  Kept Part(graph::ParameterId parameter, const Box& box) const;

 private:
  std::shared_ptr<Held> Allocate(graph::ParameterId id,
                                 const Box& box,
                                 const std::vector<Box>& kept);
  Result<Copied> Uploaded(const at::Tensor& host);

  const graph::Graph* graph_;
  Device* device_;
  // By parameter; nullptr: not held. Shared only between the states that Share joined.
  std::vector<std::shared_ptr<Held>> held_;
  std::vector<bool> gathered_;  // By parameter.
};

}  // namespace heddle::runtime
