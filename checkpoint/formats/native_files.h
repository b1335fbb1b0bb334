/// \file
/// Writes a native checkpoint from one stream of elements, file after file and box after box, with
/// memory that does not depend on the model's size. A training job, whose memory holds the whole
/// state, saves through checkpoint/save/writer.h instead.
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
  /// BoxRecord::derived_from; the caller has compared the elements. They must still be appended,
  /// for their digest.
  std::string derived_from = {};
  /// StoredBox::stored_as; the appended elements are those that a reader gets, rounded and widened.
  std::optional<DType> stored_as = std::nullopt;
  friend bool operator==(const PlacedBox&, const PlacedBox&) = default;
};

/// A file and its boxes, in the order in which their elements will be appended.
struct FilePlan {
  std::string name;
  std::vector<PlacedBox> boxes;
  friend bool operator==(const FilePlan&, const FilePlan&) = default;
};

struct NativeRequest {
  std::string path;
  bool replace = false;  ///< See SinkRequest::replace.
  std::string identity;  ///< See SinkRequest::identity; must also cover `files`.
  int64_t step = 0;
  int64_t generation = 0;
  JobState job;
  std::vector<TensorInfo> tensors;
  std::vector<FilePlan> files;  ///< At least one; their boxes cover every tensor exactly once.
  int threads = 1;              ///< Threads for compression.
};

/// A native checkpoint being written. Chunks are contiguous pieces of about 1 MiB of their box,
/// compressed in batches by NativeRequest::threads threads. The destructor removes the files of a
/// checkpoint that was not finished. Thread: one caller at a time.
class NativeFiles {
 public:
  /// Begins the checkpoint. Errors: kInvalidArgument (tensors that cannot be stored), those of
  /// StagedOutput and of creating files.
  static Result<std::unique_ptr<NativeFiles>> Create(NativeRequest request);
  ~NativeFiles();

  /// Number of the first files that an earlier process has finished. The first appended elements
  /// are those of the file after them.
  size_t finished() const;
  /// See StagedOutput::history.
  const std::string& history() const;

  /// Appends the next elements, each box row-major. The bytes of a call are whole elements of one
  /// box. Errors: those of writing; kFailedPrecondition (more elements than the request has).
  Status Append(std::span<const std::byte> bytes);
  /// Completes the checkpoint after all elements were appended: it appears at its path, on storage.
  /// `last_look`, if given, is called with the manifest before that; it may change the manifest, or
  /// return an error to stop. Errors: those of Append; kFailedPrecondition (elements are missing);
  /// kInvalidArgument (the boxes do not cover the tensors).
  Status Finish(const std::function<Status(Manifest&)>& last_look = {});

 private:
  class Implementation;
  explicit NativeFiles(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heddle::checkpoint
