/// \file
/// Training and validation samples from the user's files. A sample is a window of `sequence_length`
/// tokens with its targets, the same tokens one position later. Windows are contiguous at fixed
/// positions. The last part of the data is for validation; no training window overlaps it.
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
  /// Files, or folders whose files are used in sorted order; symbolic links within a folder are
  /// not followed. Text files in a folder that contain a NUL byte are skipped, which is logged.
  std::vector<std::string> paths;
  /// Globs relative to a folder ("*.txt", "**/*.txt"); empty: every file at any depth.
  std::vector<std::string> include;
  Format format = Format::kText;
  /// Tokens of one sample, at least 1.
  int64_t sequence_length = 0;
  /// The size of the model's vocabulary, at least 1; every token must be smaller.
  int64_t vocabulary = 256;
  /// The fraction of the tokens, at the end, that is for validation, in [0, 1).
  double validation_fraction = 0.05;
  /// Seed of the order of samples.
  uint64_t seed = 0;

  bool operator==(const DatasetOptions&) const = default;
};

/// The samples of the user's files. Thread: any; reads may run concurrently.
class Dataset {
 public:
  /// Opens the files.
  /// Errors: kInvalidArgument   no file, no text, data shorter than one window, token not below the
  ///                            vocabulary, vocabulary below 256 for text; names the file
  ///         the system's       a file cannot be read
  static Result<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);

  /// The smallest vocabulary that has every token seen so far; 256 for text.
  int64_t vocabulary_floor() const { return corpus_->vocabulary_floor(); }
  int64_t tokens() const { return corpus_->size(); }
  /// Number of training windows, which is the number of samples of an epoch.
  int64_t train_windows() const { return train_windows_; }
  int64_t validation_windows() const { return validation_windows_; }
  int64_t sequence_length() const { return options_.sequence_length; }
  std::vector<std::string> files() const { return corpus_->files(); }

  /// A hash of content, sequence length, split and seed; equal for data sets with equal samples.
  uint64_t fingerprint() const { return fingerprint_; }

  /// Reads sample `sample` >= 0 of the training order; every epoch has an order of its own.
  /// `tokens` and `targets` have sequence_length() elements.
  /// Errors: kInvalidArgument   a token is not below the vocabulary
  ///         kDataLoss          a file shrank since Open()
  Status ReadSample(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) const;

  /// Reads window `window` in [0, validation_windows()) of the validation data, in file order.
  /// `tokens` and `targets` have sequence_length() elements. Errors: those of ReadSample;
  /// kOutOfRange (any other number).
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
