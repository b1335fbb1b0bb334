/// \file
/// Writing a file of chunked datasets whose chunks are already compressed, or of virtual datasets
/// that show what others hold. With its driver
/// (checkpoint/files/hdf5_driver.h), the one place that calls libhdf5. The library is serial
/// (Debian's build has one global lock), so calls are serialised here and everything slow happens
/// outside.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/files/chunk_sink.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Where the elements of a box of a virtual dataset lie.
struct VirtualSource {
  Box box;           ///< It has elements.
  std::string file;  ///< In the same folder.
  std::string dataset;
};

/// Thread: one caller at a time; different files from different threads are fine.
class Hdf5File : public ChunkSink {
 public:
  /// Creates or truncates `path`. About so many datasets and chunks are to come. Errors: those of
  /// open(2).
  static Result<std::unique_ptr<Hdf5File>> Create(const std::string& path,
                                                  int64_t datasets,
                                                  int64_t chunks);
  /// Closes without a promise that anything is on storage.
  ~Hdf5File() override;

  /// A chunk's address is that in the file.
  Status BeginDataset(const std::string& dataset,
                      const StoredBox& stored,
                      const Shape& chunk) override;
  Result<int64_t> WriteChunk(const Shape& offset, std::span<const std::byte> bytes) override;
  Status EndDataset() override;
  /// Adds a dataset of the whole tensor, which has elements, made of the boxes of other files. They
  /// are not opened. None may be open here.
  Status WriteVirtualDataset(const std::string& dataset,
                             const TensorInfo& tensor,
                             std::span<const VirtualSource> sources);

  /// Closes the file: its bytes are final, and on their way to storage. Errors: the first failed
  /// write: kResourceExhausted (disk full, quota, file size limit), kUnavailable or others by
  /// errno.
  Result<FileRecord> Close();
  /// After Close: waits until the file is on storage. Errors: as Close, of fsync.
  Status Sync();

 private:
  struct State;
  explicit Hdf5File(std::unique_ptr<State> state);
  bool ok() const;
  Status Failure(const char* what) const;
  Status CreateDataset(const std::string& dataset,
                       const StoredBox& stored,
                       DType type,
                       int64_t creation);
  std::unique_ptr<State> state_;
};

}  // namespace heddle::checkpoint
