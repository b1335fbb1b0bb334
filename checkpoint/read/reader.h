/// \file
/// Reading a checkpoint under any plan: a wanted box is intersected with the stored boxes, and only
/// the chunks that it touches are read, checked and decoded, each once. The manifest says where
/// every chunk lies, so reading does not go through libhdf5, which damaged files can crash.
/// Elements that were left out, because they follow from another tensor's, are computed from its
/// chunks.
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

/// Thread: any; reads may run at the same time.
class Reader {
 public:
  /// Opens the checkpoint at `path`, a folder or a URL, and its files, and compares their sizes
  /// with the manifest. Errors: kInvalidArgument  not a checkpoint (no folder, or one without a
  /// manifest)
  ///         kDataLoss         damaged; the message names the file
  ///         kUnimplemented    written by a newer version
  ///         and those of a store that cannot be reached (checkpoint/storage/storage.h)
  static Result<std::unique_ptr<Reader>> Open(const std::string& path);
  /// Over files that are open, or whose bytes lie elsewhere: `files` are those of `manifest`, which
  /// is valid, in its order. `path` is for messages. Errors: kInvalidArgument for another number of
  /// files, kDataLoss for one of another size.
  static Result<std::unique_ptr<Reader>> Over(Manifest manifest,
                                              std::vector<std::unique_ptr<SourceFile>> files,
                                              std::string path);
  ~Reader();

  const Manifest& manifest() const;
  const std::string& path() const;

  /// Reads one box. Errors: kNotFound for a tensor that is not there, kInvalidArgument for a box
  /// outside it or another size of `out`, kDataLoss for a damaged chunk (file, tensor and chunk are
  /// named); `out` is unspecified then.
  Status Read(const TensorKey& key, const Box& box, std::span<std::byte> out) const;

  /// Reads many boxes with up to `threads` threads; a chunk that several boxes need is decoded
  /// once.
  Status ReadBoxes(std::span<const ReadRequest> requests, int threads) const;

  /// Compares every file, whole, with its hash. Errors: kDataLoss naming the first that differs.
  Status CheckFileHashes() const;

 private:
  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace heddle::checkpoint
