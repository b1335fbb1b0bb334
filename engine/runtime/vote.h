/// \file
/// The vote that makes a step a transaction: every worker contributes its owned parameters' sums of
/// squares and its microbatches' losses once all its reductions are complete; what all workers then
/// know (norm, loss, flags) is computed from the same records in the same order, so it has the same
/// bits everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace heddle::runtime {

/// What a worker says of itself in a vote; of all workers together: what any of them says.
struct VoteFlags {
  bool stop = false;          ///< Told to stop after the step.
  bool saving = false;        ///< Still writes the checkpoint before.
  bool replicating = false;   ///< Still exchanges the snapshot in memory before.
  bool unreplicated = false;  ///< Has not all that it should have of that snapshot, nor will.
  friend bool operator==(const VoteFlags&, const VoteFlags&) = default;
};

struct VoteRecord {
  int64_t step = 0;
  VoteFlags flags;
  struct Norm {
    int32_t parameter = -1;
    double sum_of_squares = 0;
  };
  struct Loss {
    int32_t microbatch = -1;
    double loss = 0;
  };
  std::vector<Norm> norms;
  std::vector<Loss> losses;
};

struct VoteOutcome {
  double gradient_norm = 0;  ///< Global 2-norm before clipping.
  double loss = 0;           ///< Sum of microbatch losses in number order.
  VoteFlags flags = {};      ///< Of all workers together, so that all do alike.
  bool finite = true;        ///< Norm and loss are finite; otherwise the step must not be applied.
};

Bytes EncodeVote(const VoteRecord& record);
/// Errors: kDataLoss.
Result<VoteRecord> DecodeVote(std::span<const std::byte> bytes);

/// Errors: kInternal when steps differ, or a parameter or microbatch is missing or voted twice.
Result<VoteOutcome> DecideVote(const std::vector<VoteRecord>& records,
                               int parameters,
                               int microbatches);

}  // namespace heddle::runtime
