/// \file
/// Converting a model from any format to any other, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "checkpoint/format/progress.h"

namespace heddle::checkpoint {

struct ConvertOptions {
  std::string to;              ///< A format's name (formats/format.h).
  std::optional<DType> dtype;  ///< Of floating weights; none: each keeps its own.
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;
  bool overwrite = false;
  int threads = 1;
  Progress progress = {};  ///< In bytes of the elements as written.
  /// Called with one line for the user as soon as it is known: tensors that are left out, an
  /// earlier attempt that is gone on with.
  std::function<void(const std::string& line)> note = {};
};

struct ConvertSummary {
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< Of the elements as written.
};

/// Writes the weights of the model at `source` to `target`, under the names and layouts that belong
/// to the format (Hugging Face's for safetensors and pytorch, Heddle's for native); between native
/// checkpoints moments come along. `target` appears whole, when everything is on storage. Needs
/// memory for a few tiles of 32 MiB, whatever the model's size. When the process is killed, the
/// files that were finished stay beside `target`, and the same call, from a source that has not
/// changed, goes on after them; any other begins anew.
/// Errors: kAlreadyExists    something is at `target` and is not to be overwritten, or is no model
///         kInvalidArgument  not a model, an unknown format, tensors that do not fit config.json
///         kDataLoss         damage, naming file and tensor
///         kUnavailable      another process is writing to `target`
///         kOutOfRange       a weight is too large for the element type
///         and those of the file system; the target is then as it was.
Result<ConvertSummary> Convert(const std::string& source,
                               const std::string& target,
                               const ConvertOptions& options);

}  // namespace heddle::checkpoint
