/// \file
/// A model as one file, or as a folder in the layout of Hugging Face's transformers:
///
///     STEM.SUFFIX                    all tensors; or
///     STEM-00001-of-00002.SUFFIX …   the shards, and
///     STEM.SUFFIX.index.json         {"metadata": {"total_size": bytes},
///                                     "weight_map": {tensor: file}}
///     config.json                    the architecture, if known
///
/// A format provides the reading and writing of one file; this file does the rest. Indexes are
/// untrusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

inline constexpr int64_t kMaxIndexBytes = int64_t{8} << 20;
inline constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

/// The format of a single file.
struct FileFormat {
  std::string name;    ///< Name of the format: "pytorch".
  std::string stem;    ///< Stem of the names of files in a folder: "pytorch_model".
  std::string suffix;  ///< Suffix of those names: ".bin".
  /// Suffixes of output paths that mean one file; any other output path is a folder.
  std::vector<std::string> file_suffixes;
  std::function<Result<std::unique_ptr<TensorSource>>(const std::string& path)> open;
  /// Creates `path` and returns a sink that leaves it complete and closed, but neither synced nor
  /// renamed.
  std::function<Result<std::unique_ptr<TensorSink>>(const std::string& path,
                                                    std::vector<OutputTensor> tensors)>
      create;
};

/// Whether `path` is a folder with the single file or the index of `format`.
bool IsModelFolder(const FileFormat& format, const std::string& path);

/// Opens a folder of IsModelFolder: the tensors of all its files, and config.json. If both the
/// single file and the index exist, the single file is the model, as in transformers.
/// Errors: kDataLoss (an invalid index, a missing shard, a tensor that its shard lacks or that two
/// shards hold); kResourceExhausted (an index or config.json above its limit); those of opening
/// files. A config.json that exists and cannot be read is an error, too: kDataLoss (not a JSON
/// object), kInvalidArgument (refused by CheckNoPlaceholder).
Result<std::unique_ptr<TensorSource>> OpenModelFolder(const FileFormat& format,
                                                      const std::string& folder);

/// Creates a sink that writes the request's tensors as one file or as a folder, in shards if they
/// are larger than `max_shard_bytes`, under a temporary name until Finish. A single file cannot
/// hold the config.
Result<std::unique_ptr<TensorSink>> CreateModel(const FileFormat& format, SinkRequest request);

/// Checks that a config.json's text can be parsed, whatever model it describes. Errors: kDataLoss.
Status CheckConfig(std::string_view text);

/// The file of every tensor in the index at `path`: at least one, with plain file names only.
/// Errors: kDataLoss, kResourceExhausted (above kMaxIndexBytes), kInvalidArgument (refused by
/// CheckNoPlaceholder), those of reading.
Result<std::map<std::string, std::string>> ReadShardIndex(const std::string& path);

/// The text of an index. Errors: kInvalidArgument (names that are not UTF-8).
Result<std::string> EncodeShardIndex(const std::map<std::string, std::string>& weight_map,
                                     int64_t total_bytes);

/// The name of shard `number` (from 1) of `count`: "pytorch_model-00002-of-00007.bin", or
/// "pytorch_model.bin" if there is only one.
std::string ShardName(const FileFormat& format, size_t number, size_t count);

/// The first tensor of each shard; there is at least one shard, and the first begins at 0. A shard
/// ends before the tensor with which it would exceed `max_bytes`; a larger tensor has a shard of
/// its own.
std::vector<size_t> SplitIntoShards(std::span<const OutputTensor> tensors, int64_t max_bytes);

}  // namespace heddle::checkpoint
