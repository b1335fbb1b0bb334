/// \file
/// The figures of the run without faults, which every other run is compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// The steps that the vote refuses, and the results of all others: pure functions of the step.
/// Thread: one caller.
class Undisturbed {
 public:
  /// `refused_every`: the vote refuses every step divisible by it; 0: none. Every other refused
  /// step has a norm that is a number, but a loss that is not.
  explicit Undisturbed(int64_t refused_every) : refused_every_(refused_every) {}

  bool Refused(int64_t step) const;
  double Norm(int64_t step) const;
  double Loss(int64_t step) const;
  /// The hash of all updates of a parameter, after the step.
  uint64_t Chain(int64_t step) const;
  /// The record of the step that a worker of `generation` sends.
  wire::StepRecord Record(int64_t step, int64_t generation) const;

 private:
  int64_t refused_every_;
  mutable std::vector<uint64_t> chains_ = {7};  ///< By step, as far as any was asked for.
};

/// The hash of a parameter's updates after one more update.
uint64_t NextChain(uint64_t chain, int64_t step, double norm);
/// The result of a validation after `step`, which also encodes the validating generation.
double SimValidation(int64_t step, int64_t generation);

}  // namespace heddle::elastic
