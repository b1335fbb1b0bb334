/// \file
/// Reads a checkpoint under any plan: a requested box is intersected with the stored boxes, and
/// only the chunks that it touches are read, checked and decoded, each once. The manifest has the
/// address of every chunk, so that reading does not use libhdf5, which damaged files can crash.
/// Elements that are not stored because they are derived from another tensor's are computed from
/// that tensor's chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

struct ReadRequest {
  TensorKey key;
  Box box;
  /// Receives the box's elements, row-major: ElementCount(box.extent) * SizeOf(dtype) bytes.
  std::span<std::byte> out;
};

/// An opened checkpoint. Thread: any; reads may run concurrently.
class Reader {
 public:
  /// Opens the checkpoint at `path`, a folder or a URL, and its files, and compares their sizes
  /// with the manifest.
  /// Errors: kInvalidArgument  not a checkpoint (no folder, or one without a manifest)
  ///         kDataLoss         damaged; the message names the file
  ///         kUnimplemented    written by a newer version
  ///         and those of a store that cannot be reached (checkpoint/storage/storage.h)
  static Result<std::unique_ptr<Reader>> Open(const std::string& path);
  /// Makes a reader over sources that are open already: `files` are those of `manifest`, which is
  /// valid, in its order. `path` is used in messages. Errors: kInvalidArgument (another number of
  /// files), kDataLoss (a file of another size).
  static Result<std::unique_ptr<Reader>> Over(Manifest manifest,
                                              std::vector<std::unique_ptr<SourceFile>> files,
                                              std::string path);
  ~Reader();

  const Manifest& manifest() const;
  const std::string& path() const;

  /// Reads one box into `out`. Errors: kNotFound (no such tensor), kInvalidArgument (a box outside
  /// the tensor, or another size of `out`), kDataLoss (a damaged chunk; file, tensor and chunk are
  /// named). After an error `out` is unspecified.
  Status Read(const TensorKey& key, const Box& box, std::span<std::byte> out) const;

  /// Reads many boxes with up to `threads` threads; a chunk that several boxes need is decoded
  /// once.
  Status ReadBoxes(std::span<const ReadRequest> requests, int threads) const;

  /// Compares the content of every file with its hash. Errors: kDataLoss naming the first that
  /// differs.
  Status CheckFileHashes() const;

 private:
  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace heddle::checkpoint
