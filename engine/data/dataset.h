/// \file
/// Training and validation samples from the user's files. A sample is a window of `sequence_length`
/// tokens with its targets, the same tokens one position later. Windows lie side by side at fixed
/// places; the last part of the data is for validation and no training window reaches into it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/data/corpus.h"
#include "engine/data/sample_order.h"

namespace heddle::data {

struct DatasetOptions {
  /// Files, or folders whose files are taken in sorted order; symbolic links within a folder are
  /// not followed. Text files found in a folder that hold a NUL byte are skipped with a line in the
  /// log.
  std::vector<std::string> paths;
  /// Globs relative to a folder ("*.txt", "**/*.txt"); empty: every file at any depth.
  std::vector<std::string> include;
  Format format = Format::kText;
  /// Tokens of one sample, at least 1.
  int64_t sequence_length = 0;
  /// The model's vocabulary, at least 1: every token must be smaller.
  int64_t vocabulary = 256;
  /// The part of the tokens at the end that is for validation, in [0, 1).
  double validation_fraction = 0.05;
  /// Of the order of samples.
  uint64_t seed = 0;

  bool operator==(const DatasetOptions&) const = default;
};

/// Thread: any; reads go on side by side.
class Dataset {
 public:
  /// Errors: kInvalidArgument   no file, no text, data shorter than one window, token not below the
  ///                            vocabulary, vocabulary below 256 for text; names the file
  ///         the system's       a file cannot be read
  static Result<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);

  /// The smallest vocabulary that holds every token seen so far: 256 for text.
  int64_t vocabulary_floor() const { return corpus_->vocabulary_floor(); }
  int64_t tokens() const { return corpus_->size(); }
  /// Samples of one epoch.
  int64_t train_windows() const { return train_windows_; }
  int64_t validation_windows() const { return validation_windows_; }
  int64_t sequence_length() const { return options_.sequence_length; }
  std::vector<std::string> files() const { return corpus_->files(); }

  /// Equal for data sets that give the same samples: content, sequence length, split and seed.
  uint64_t fingerprint() const { return fingerprint_; }

  /// Sample `sample` >= 0 of the training order; numbers beyond the first epoch go on in a new
  /// order. Shape:  `tokens` and `targets` are [sequence_length]. Errors: kInvalidArgument   a
  /// token is not below the vocabulary
  ///         kDataLoss          a file shrank since Open()
  Status ReadSample(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) const;

  /// Window `window` in [0, validation_windows()) of the validation data, in file order. Shape and
  /// errors as above; kOutOfRange for any other number.
  Status ReadValidation(int64_t window,
                        std::span<int32_t> tokens,
                        std::span<int32_t> targets) const;

 private:
  Dataset(DatasetOptions options, std::unique_ptr<Corpus> corpus);
  Status Split();
  Status ReadWindow(int64_t first, std::span<int32_t> tokens, std::span<int32_t> targets) const;

  const DatasetOptions options_;
  const std::unique_ptr<Corpus> corpus_;
  int64_t train_windows_ = 0;
  int64_t validation_windows_ = 0;
  int64_t validation_first_ = 0;
  std::optional<SampleOrder> order_;
  uint64_t fingerprint_ = 0;
};

}  // namespace heddle::data
