/// \file
/// The figures of the run that no fault disturbs, which every other run is compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// Which steps the vote refuses, and what all others compute: a pure function of
/// the step. Thread: one caller.
class Undisturbed {
 public:
  /// `refused_every`: the vote refuses each so-many-th step; 0: none. Of the steps that it refuses
  /// every other one has a norm that is a number: its loss is none.
  explicit Undisturbed(int64_t refused_every) : refused_every_(refused_every) {}

  bool Refused(int64_t step) const;
  double Norm(int64_t step) const;
  double Loss(int64_t step) const;
  /// The hash of all updates of a parameter, after the step.
  uint64_t Chain(int64_t step) const;
  /// What a worker of `generation` tells of the step.
  wire::StepRecord Record(int64_t step, int64_t generation) const;

 private:
  int64_t refused_every_;
  mutable std::vector<uint64_t> chains_ = {7};  ///< By step; what was asked for before.
};

/// One more update.
uint64_t NextChain(uint64_t chain, int64_t step, double norm);
/// Tells also which generation validated.
double SimValidation(int64_t step, int64_t generation);

}  // namespace heddle::elastic
