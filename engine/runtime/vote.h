/// \file
/// The vote makes a step a transaction. Once all its reductions are complete, each worker
/// contributes a record: the sums of squares of the parameters that it owns, and the losses of its
/// microbatches. All workers compute the outcome (norm, loss, flags) from the same records in the
/// same order, and so it has the same bits everywhere. Pure functions of plain data. Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace heddle::runtime {

/// The flags of a worker in a vote. Those of an outcome are set if any worker has set them.
struct VoteFlags {
  bool stop = false;          ///< The worker was told to stop after the step.
  bool saving = false;        ///< The worker still writes the last checkpoint.
  bool replicating = false;   ///< The worker still exchanges shards of the last snapshot in memory.
  bool unreplicated = false;  ///< The worker lacks a shard of that snapshot for good.
  friend bool operator==(const VoteFlags&, const VoteFlags&) = default;
};

/// One worker's contribution to a vote.
struct VoteRecord {
  int64_t step = 0;
  VoteFlags flags;
  struct Norm {
    int32_t parameter = -1;
    int64_t leaf = 0;      ///< Number of the part among the parameter's, which are added in order.
    int64_t elements = 0;  ///< Elements of the part that the worker owns.
    double sum_of_squares = 0;  ///< The sum of the squares of that part of the gradient.
  };
  struct Loss {
    int32_t microbatch = -1;  ///< The number of the microbatch in the global batch.
    double loss = 0;
  };
  std::vector<Norm> norms;   ///< The parameters, and parts of them, that the worker owns.
  std::vector<Loss> losses;  ///< The microbatches whose losses the worker computes.
};

/// The result of a vote, the same on all workers.
struct VoteOutcome {
  double gradient_norm = 0;  ///< The global 2-norm of the gradient before clipping.
  double loss = 0;           ///< The sum of the losses of all microbatches, in their order.
  VoteFlags flags = {};      ///< The flags that any worker has set.
  bool finite = true;        ///< Norm and loss are finite; otherwise the step must not be applied.
};

/// Encodes a record as bytes for the other workers.
Bytes EncodeVote(const VoteRecord& record);
/// Decodes the bytes of EncodeVote. Errors: kDataLoss (they are malformed).
Result<VoteRecord> DecodeVote(std::span<const std::byte> bytes);

/// Computes the outcome of the records of all workers, in the order of their ranks. `elements`: of
/// each parameter; its parts have as many in sum. `microbatches`: the number of those that the
/// records have to cover. Errors: kInternal (the steps differ, a parameter has another number of
/// elements or is unknown, or a microbatch is missing, unknown or there twice).
Result<VoteOutcome> DecideVote(const std::vector<VoteRecord>& records,
                               std::span<const int64_t> elements,
                               int microbatches);

}  // namespace heddle::runtime
