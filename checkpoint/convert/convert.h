/// \file
/// Converting a model from any format to any other, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace heddle::checkpoint {

struct ConvertOptions {
  std::string to;              ///< A format's name (formats/format.h).
  std::optional<DType> dtype;  ///< Of floating weights; none: each keeps its own.
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;
  bool overwrite = false;
  int threads = 1;
  /// Called with the bytes written so far and of all tensors, at most once a tile.
  std::function<void(int64_t done, int64_t all)> progress;
};

struct ConvertSummary {
  int64_t tensors = 0;
  int64_t bytes = 0;               ///< Of the elements as written.
  std::vector<std::string> notes;  ///< One line each, for the user.
};

/// Writes the weights of the model at `source` to `target`, under the names and layouts that belong
/// to the format (Hugging Face's for safetensors and pytorch, Heddle's for native); between native
/// checkpoints moments come along. `target` appears whole, when everything is on storage. Needs
/// memory for a few tiles of 32 MiB, whatever the model's size.
/// Errors: kAlreadyExists    something is at `target` and is not to be overwritten, or is no model
///         kInvalidArgument  not a model, an unknown format, tensors that do not fit config.json
///         kDataLoss         damage, naming file and tensor
///         kOutOfRange       a weight is too large for the element type
///         and those of the file system; the target is then as it was.
Result<ConvertSummary> Convert(const std::string& source,
                               const std::string& target,
                               const ConvertOptions& options);

}  // namespace heddle::checkpoint
