/// \file
/// A model as one file, or as a folder in the layout of Hugging Face's transformers:
///
///     STEM.SUFFIX                    all tensors, or else
///     STEM-00001-of-00002.SUFFIX …   the shards, and
///     STEM.SUFFIX.index.json         {"metadata": {"total_size": bytes}, "weight_map": {tensor:
///     file}} config.json                    the architecture, when known
///
/// A format brings the reading and the writing of one file; this is the rest. Indexes are
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

inline constexpr int64_t kMaximumIndexBytes = int64_t{8} << 20;
inline constexpr int64_t kMaximumConfigBytes = int64_t{1} << 20;

/// One file's format.
struct FileFormat {
  std::string name;    ///< "pytorch".
  std::string stem;    ///< Of the files in a folder: "pytorch_model".
  std::string suffix;  ///< ".bin"
  /// Endings of paths that mean one file; any other path to be written is a folder.
  std::vector<std::string> file_suffixes;
  std::function<Result<std::unique_ptr<TensorSource>>(const std::string& path)> open;
  /// A sink that creates `path` and leaves it complete and closed; neither synced nor renamed.
  std::function<Result<std::unique_ptr<TensorSink>>(const std::string& path,
                                                    std::vector<OutputTensor> tensors)>
      create;
};

/// Whether `path` is a folder with the single file or the index of `format`.
bool IsModelFolder(const FileFormat& format, const std::string& path);

/// Opens such a folder: the tensors of all its files, and config.json. When both the single file
/// and the index are there, the single file is the model, as for transformers.
/// Errors: kDataLoss  a bad index, a missing shard, a tensor that its shard lacks or that two
/// shards hold; kResourceExhausted  an index or config.json above its limit; those of opening
/// files. A config.json that is there and cannot be read is an error, too: kDataLoss for what is no
/// JSON object, kInvalidArgument for what CheckNoPlaceholder refuses.
Result<std::unique_ptr<TensorSource>> OpenModelFolder(const FileFormat& format,
                                                      const std::string& folder);

/// Writes the request's tensors as one file or as a folder, in shards when they are larger than
/// `max_shard_bytes`, under a temporary name until Finish. A single file has no place for config.
Result<std::unique_ptr<TensorSink>> CreateModel(const FileFormat& format, SinkRequest request);

/// Whether a config.json's text can be read at all, whatever model it describes. Errors: kDataLoss.
Status CheckConfig(std::string_view text);

/// The file of every tensor, as the index at `path` says: at least one, all plain file names.
/// Errors: kDataLoss, kResourceExhausted (above kMaximumIndexBytes), kInvalidArgument for what
/// CheckNoPlaceholder refuses, those of reading.
Result<std::map<std::string, std::string>> ReadShardIndex(const std::string& path);

/// The index's text. Errors: kInvalidArgument for names that are not UTF-8.
Result<std::string> EncodeShardIndex(const std::map<std::string, std::string>& weight_map,
                                     int64_t total_bytes);

/// "pytorch_model-00002-of-00007.bin"; `number` counts from 1. One shard alone:
/// "pytorch_model.bin".
std::string ShardName(const FileFormat& format, size_t number, size_t count);

/// Where each shard begins: a new one when the next tensor does not fit into `max_bytes` any more.
/// The first begins at 0; a tensor larger than `max_bytes` has its own. At least one shard.
std::vector<size_t> SplitIntoShards(std::span<const OutputTensor> tensors, int64_t max_bytes);

}  // namespace heddle::checkpoint
