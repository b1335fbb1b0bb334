/// \file
/// Writing a native checkpoint as one stream of elements: file after file, box after box, in memory
/// that does not depend on the model's size. A training job saves through checkpoint/save/writer.h
/// instead, from memory that holds the whole state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// A box of one of the request's tensors.
struct PlacedBox {
  size_t tensor = 0;
  Box box;
  /// As in BoxRecord; whoever says so has compared the elements. They come all the same, for their
  /// digest.
  std::string derived_from = {};
  /// As in StoredBox; the elements that come are those that a reader gets, rounded and widened.
  std::optional<DType> stored_as = std::nullopt;
  friend bool operator==(const PlacedBox&, const PlacedBox&) = default;
};

/// One file and what it holds, in the order in which the elements will come.
struct FilePlan {
  std::string name;
  std::vector<PlacedBox> boxes;
  friend bool operator==(const FilePlan&, const FilePlan&) = default;
};

struct NativeRequest {
  std::string path;
  bool replace = false;  ///< As SinkRequest::replace.
  std::string identity;  ///< As SinkRequest::identity; of the files' plan, too.
  int64_t step = 0;
  int64_t generation = 0;
  JobState job;
  std::vector<TensorInfo> tensors;
  std::vector<FilePlan> files;  ///< At least one; their boxes cover every tensor exactly once.
  int threads = 1;              ///< That compress.
};

/// Chunks are contiguous pieces of about 1 MiB of their box, compressed by `threads` threads in
/// batches. What was not finished is removed at the end of its life. Thread: one caller at a time.
class NativeFiles {
 public:
  /// Errors: kInvalidArgument for tensors that cannot be stored, those of StagedOutput and of
  /// creating files.
  static Result<std::unique_ptr<NativeFiles>> Create(NativeRequest request);
  ~NativeFiles();

  /// How many of the first files an earlier process has finished: the elements to come begin with
  /// those of the file after them.
  size_t finished() const;
  /// As StagedOutput::history.
  const std::string& history() const;

  /// The next elements, each box row-major. One call's bytes are whole elements of one box.
  /// Errors: those of writing; kFailedPrecondition for more elements than there are.
  Status Append(std::span<const std::byte> bytes);
  /// Every element has come: the checkpoint appears at its path, on storage. `last_look`, when
  /// given, sees the manifest before, may change it, and refuses by an error. Errors: as Append;
  /// kFailedPrecondition when elements are missing; kInvalidArgument when the boxes do not cover
  /// the tensors.
  Status Finish(const std::function<Status(Manifest&)>& last_look = {});

 private:
  class Implementation;
  explicit NativeFiles(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heddle::checkpoint
