/// \file
/// Creates an initial training state from a model's weights.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"
#include "engine/graph/models/model.h"

namespace heddle::checkpoint {

/// Checks that the model at `source`, of any format, is `model` and has the weights of `expected`
/// (roles master, exp_avg and exp_avg_sq), by name and shape. Its config.json must agree with the
/// job, because models with other heads or another rotary base have tensors of the same shapes.
/// Reads no elements. Errors: kInvalidArgument naming the tensor or the key; those of OpenModel.
Status CheckInitialWeights(const std::string& source,
                           const graph::ModelConfig& model,
                           const std::vector<TensorInfo>& expected);

/// Writes the checkpoint of step 0 into `root`: the model's weights, converted to the master's type
/// if that is wider, and moments of zero. A root that has checkpoints is left unchanged. The
/// checkpoint appears in one rename. Errors: those of CheckInitialWeights, kDataLoss for damage,
/// kOutOfRange for weights that the master's type cannot hold, and those of the file system.
Status WriteInitialState(const std::string& source,
                         const std::string& root,
                         const graph::ModelConfig& model,
                         const std::vector<TensorInfo>& expected);

}  // namespace heddle::checkpoint
