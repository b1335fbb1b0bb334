#include "engine/data/dataset.h"

#include <algorithm>
#include <filesystem>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "engine/data/file_list.h"

namespace heddle::data {
namespace {

Result<std::vector<Corpus::Source>> FindSources(const DatasetOptions& options) {
  std::vector<Corpus::Source> sources;
  bool folders = false;
  for (const std::string& path : options.paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      sources.push_back({.path = path, .named = true});
      continue;
    }
    folders = true;
    HEDDLE_ASSIGN_OR_RETURN(const auto files, ListFiles(path, options.include));
    for (const std::string& file : files) {
      sources.push_back({.path = file, .named = false});
    }
  }
  std::error_code error;
  if (!options.include.empty() && !folders &&
      std::filesystem::exists(options.paths.front(), error)) {
    return InvalidArgumentError("data.include has no effect: {} is no folder, and is read whole",
                                options.paths.front());
  }
  return sources;
}

}  // namespace

Result<std::unique_ptr<Dataset>> Dataset::Open(const DatasetOptions& options) {
  HEDDLE_CHECK(options.sequence_length >= 1 && options.vocabulary >= 1,
               "the job's ranges are checked");
  HEDDLE_CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1, "fraction {}",
               options.validation_fraction);
  if (options.paths.empty()) {
    return InvalidArgumentError("data: no file or folder is named");
  }
  if (options.format == Format::kText && options.vocabulary < 256) {
    return InvalidArgumentError("text needs a vocabulary of at least 256, the model has {}",
                                options.vocabulary);
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto sources, FindSources(options));
  HEDDLE_ASSIGN_OR_RETURN(auto corpus, Corpus::Open(options.format, sources, options.vocabulary));
  std::unique_ptr<Dataset> dataset(new Dataset(options, std::move(corpus)));
  HEDDLE_RETURN_IF_ERROR(dataset->Split());
  return dataset;
}

Dataset::Dataset(DatasetOptions options, std::unique_ptr<Corpus> corpus)
    : options_(std::move(options)),
      corpus_(std::move(corpus)) {
  ByteWriter what;
  what.Put(corpus_->fingerprint());
  what.Put(corpus_->size());
  what.Put(options_.format);
  what.Put(options_.sequence_length);
  what.Put(options_.validation_fraction);
  what.Put(options_.seed);
  fingerprint_ = Hash64(what.bytes());
}

Status Dataset::Split() {
  const int64_t tokens = corpus_->size();
  const int64_t window = options_.sequence_length;
  const auto validation =
      static_cast<int64_t>(static_cast<double>(tokens) * options_.validation_fraction);
  validation_first_ = tokens - validation;
  // A window takes one token more for its last target; the next window starts with that token.
  train_windows_ = std::max<int64_t>(0, (validation_first_ - 1) / window);
  validation_windows_ = std::max<int64_t>(0, (validation - 1) / window);
  if (train_windows_ == 0) {
    return InvalidArgumentError(
        "{}: {} tokens for training are fewer than one sample, which takes {}",
        options_.paths.front(), validation_first_, window + 1);
  }
  if (validation_windows_ == 0 && options_.validation_fraction > 0) {
    return InvalidArgumentError(
        "{}: {} tokens for validation ({} of {}) are fewer than one sample, which takes {}",
        options_.paths.front(), validation, options_.validation_fraction, tokens, window + 1);
  }
  order_.emplace(options_.seed, train_windows_);
  return Status::Ok();
}

Status Dataset::ReadSample(int64_t sample,
                           std::span<int32_t> tokens,
                           std::span<int32_t> targets) const {
  return ReadWindow(order_->Window(sample) * options_.sequence_length, tokens, targets);
}

Status Dataset::ReadValidation(int64_t window,
                               std::span<int32_t> tokens,
                               std::span<int32_t> targets) const {
  if (window < 0 || window >= validation_windows_) {
    return OutOfRangeError("validation window {} of {}", window, validation_windows_);
  }
  return ReadWindow(validation_first_ + window * options_.sequence_length, tokens, targets);
}

Status Dataset::ReadWindow(int64_t first,
                           std::span<int32_t> tokens,
                           std::span<int32_t> targets) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  HEDDLE_CHECK(tokens.size() == length && targets.size() == length, "a sample has {} tokens",
               length);
  std::vector<int32_t> window(length + 1);
  HEDDLE_RETURN_IF_ERROR(corpus_->Read(first, window));
  std::copy_n(window.begin(), length, tokens.begin());
  std::copy_n(window.begin() + 1, length, targets.begin());
  return Status::Ok();
}

}  // namespace heddle::data
