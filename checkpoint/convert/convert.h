/// \file
/// Converts a model from any format to any other, in bounded memory.
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
  std::optional<DType> dtype;  ///< Type of floating-point weights; none: each keeps its own.
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;
  bool overwrite = false;
  int threads = 1;
  Progress progress = {};  ///< Counts bytes of the elements as written.
  /// Called with one line for the user, for example for tensors that are left out or an earlier
  /// attempt that is resumed.
  std::function<void(const std::string& line)> note = {};
};

struct ConvertSummary {
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< Bytes of the elements as written.
};

/// Writes the weights of the model at `source` to `target`, with the names and layouts of the
/// format (Hugging Face's for safetensors and pytorch, Heddle's for native). Between native
/// checkpoints the moments are converted, too. `target` appears in one rename when everything is on
/// storage. Needs memory for a few tiles of 32 MiB, independent of the model's size. If the process
/// is killed, the finished files stay beside `target`; the same call with an unchanged source
/// resumes after them, and any other call begins anew.
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
