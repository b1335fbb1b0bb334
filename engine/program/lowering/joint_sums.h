/// \file
/// Decides which gradients are summed by one collective. Small ones of a segment are: a collective
/// costs the same few messages and wake-ups for a norm's weight as for all of a layer. Which they
/// are follows from what all holders know, so that all of them join the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/program/lowering/batch_axis.h"

namespace heddle::program {

/// The most bytes of a gradient that is summed together with others. A larger one costs more to copy
/// beside them than a collective of its own.
constexpr int64_t kMostJoinedBytes = int64_t{256} << 10;
/// The most bytes that one collective sums of such gradients.
constexpr int64_t kMostJointBytes = int64_t{1} << 20;

/// The gradient of a piece of a parameter, as far as it decides with which others it is summed.
struct SingleSum {
  int64_t bytes = 0;
  bool alone = false;              ///< Its holders keep different rows of it.
  std::vector<int> segments = {};  ///< Of the parameter's uses, by use.
  std::vector<int> holders = {};   ///< Empty: equal uses have equal holders.
};

/// The sum of what the uses of `parameter` contribute, of `bytes`.
SingleSum SumOf(const GraphAnalysis& analysis, graph::ParameterId parameter, int64_t bytes);

/// Divides `sums`, in the order in which they are issued one by one, among collectives. Returns the
/// indices of the sums of each, ascending, in the order of their first ones. Sums that are made
/// together have the same uses and holders.
std::vector<std::vector<size_t>> JoinSums(std::span<const SingleSum> sums);

}  // namespace heddle::program
