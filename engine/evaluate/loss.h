/// \file
/// The loss of a model on data, in one process.
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
  /// Tokens of a window, at least 2; 0: as many as the model takes.
  int64_t context = 0;
  int threads = 1;  ///< That compute.
  /// Called with the tokens done and all of them, once a batch of windows.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct Loss {
  double mean = 0;     ///< Nats a predicted token.
  int64_t tokens = 0;  ///< Predicted: all but the first of each window.
};

/// Cuts the file's tokens into consecutive windows (the last one may be shorter) and predicts each
/// token after a window's first from those before it, in fp32 whatever the weights' type. Memory:
/// the weights as fp32, and the activations of one window, or of some thousand tokens where windows
/// are shorter. `weights` is named as Heddle
/// names tensors (ViewAs) and has a config. Errors: kInvalidArgument for a model without a known
/// config.json, a context that is out of range, data that is too short or has other tokens;
/// kDataLoss for damage.
Result<Loss> EvaluateLoss(const checkpoint::TensorSource& weights, const LossRequest& request);

}  // namespace heddle::evaluate
