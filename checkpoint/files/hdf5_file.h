/// \file
/// Writes a file of chunked datasets whose chunks are already compressed, or of virtual datasets
/// over those of other files. Only this file and its driver (checkpoint/files/hdf5_driver.h) call
/// libhdf5. The library is serial (Debian's build has one global lock), so its calls are serialised
/// here and all slow work is done outside of them.
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

/// The source of the elements of a box of a virtual dataset.
struct VirtualSource {
  Box box;           ///< Not empty.
  std::string file;  ///< Name of a file in the same folder.
  std::string dataset;
};

/// An HDF5 file that is being written. Thread: one caller at a time; different files may be written
/// by different threads.
class Hdf5File : public ChunkSink {
 public:
  /// Creates or truncates `path`. `datasets` and `chunks` are estimates of their numbers. Errors:
  /// those of open(2).
  static Result<std::unique_ptr<Hdf5File>> Create(const std::string& path,
                                                  int64_t datasets,
                                                  int64_t chunks);
  /// Closes the file; its content need not be on storage.
  ~Hdf5File() override;

  // ChunkSink; the address of a chunk is its offset in the file.
  Status BeginDataset(const std::string& dataset,
                      const StoredBox& stored,
                      const Shape& chunk) override;
  Result<int64_t> WriteChunk(const Shape& offset, std::span<const std::byte> bytes) override;
  Status EndDataset() override;
  /// Adds a virtual dataset of a whole tensor, which has elements, from boxes in other files, which
  /// are not opened. No dataset may be open.
  Status WriteVirtualDataset(const std::string& dataset,
                             const TensorInfo& tensor,
                             std::span<const VirtualSource> sources);

  /// Closes the file, whose content is then final but need not be on storage. Errors: that of the
  /// first failed write: kResourceExhausted (disk full, quota, file size limit), kUnavailable, or
  /// others by errno.
  Result<FileRecord> Close();
  /// Waits until the file is on storage. Precondition: Close succeeded. Errors: those of fsync.
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
