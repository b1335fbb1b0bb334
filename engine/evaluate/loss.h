/// \file
/// Computes the loss of a model on data, in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "checkpoint/formats/format.h"
#include "engine/data/corpus.h"

namespace heddle::evaluate {

struct LossRequest {
  std::string data;  ///< A file of text or of token ids.
  data::Format format = data::Format::kText;
  /// Tokens of a window, at least 2; 0: the longest that the model supports.
  int64_t context = 0;
  int threads = 1;  ///< Threads for the computation.
  /// Called once per batch of windows with the number of tokens done and of all tokens.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct Loss {
  double mean = 0;     ///< Mean loss in nats per predicted token.
  int64_t tokens = 0;  ///< Number of predicted tokens: all but the first of each window.
};

/// Splits the file's tokens into consecutive windows (the last may be shorter) and predicts each
/// token after a window's first from those before it, in fp32 whatever the weights' type. Memory:
/// the weights as fp32, and the activations of one window, or of some thousand tokens if windows
/// are shorter. `weights` has Heddle's names of tensors (ViewAs) and a config. Errors:
/// kInvalidArgument (a model without a known config.json, a context out of range, data that is too
/// short or has tokens outside the vocabulary); kDataLoss (damage).
Result<Loss> EvaluateLoss(const checkpoint::TensorSource& weights, const LossRequest& request);

}  // namespace heddle::evaluate
