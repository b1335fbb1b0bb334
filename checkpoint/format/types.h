/// \file
/// The data types of a checkpoint: writers' reports, the manifest's records, and readers' keys.
/// They are independent of plans: a checkpoint is a set of logical tensors, each covered exactly
/// once by boxes, each box divided into compressed chunks. docs/reference/checkpoint-format.md
/// describes the bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace heddle::checkpoint {

/// The version of the format that this build writes and reads.
inline constexpr int64_t kFormatVersion = 3;
inline constexpr const char* kManifestName = "MANIFEST.json";

/// Role of the weights that the optimizer updates.
inline constexpr const char* kMasterRole = "master";
/// Role of the weights' copy in the element type of the forward pass, if a state has one.
inline constexpr const char* kCopyRole = "weight";

/// A logical tensor of the training state. `role` is "master", "weight", "exp_avg" or "exp_avg_sq".
struct TensorKey {
  std::string name;
  std::string role;
  friend bool operator==(const TensorKey&, const TensorKey&) = default;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

struct TensorInfo {
  std::string name;
  std::string role;
  DType dtype = DType::kF32;
  Shape shape;
  TensorKey key() const { return {name, role}; }
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

/// One box of a logical tensor, for example the part that one worker holds.
struct StoredBox {
  std::string name;
  std::string role;
  DType dtype = DType::kF32;
  Shape global_shape;
  Box box;
  /// The type, bf16, to which fp32 elements are rounded when they are stored. None: they are stored
  /// exactly.
  std::optional<DType> stored_as = std::nullopt;
  TensorInfo tensor() const { return {name, role, dtype, global_shape}; }
};

/// A box and its elements, row-major, contiguous: ElementCount(box.extent) * SizeOf(dtype) bytes.
struct BoxView {
  StoredBox stored;
  std::span<const std::byte> bytes;
};

/// A digest of elements with their global indices. The sum of the digests of disjoint boxes is the
/// digest of their union, so it does not depend on how a tensor is split
/// (checkpoint/format/digest.h).
struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  Digest& operator+=(const Digest& other) {
    high += other.high;
    low += other.low;
    return *this;
  }
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// The address and size of a chunk's compressed bytes in their file, and the XXH3-64 of those
/// bytes.
struct ChunkRecord {
  int64_t address = 0;
  int64_t bytes = 0;
  uint64_t hash = 0;
  friend bool operator==(const ChunkRecord&, const ChunkRecord&) = default;
};

/// A stored box. Its chunks tile it in row-major order; chunks at the end of a dimension are padded
/// with zeros to the full chunk shape. A box that is derived or has no elements has no chunks and
/// no dataset.
struct BoxRecord {
  Box box;
  Shape chunk;
  int64_t file = 0;  ///< Index into Manifest::files; 0 in a FilePart.
  std::string dataset;
  Digest digest;  ///< Digest of the elements as a reader gets them.
  std::vector<ChunkRecord> chunks;
  /// Element type in the chunks if it differs from the tensor's (StoredBox::stored_as). A reader
  /// gets the tensor's type.
  std::optional<DType> stored_as = std::nullopt;
  /// If not empty, the elements, bf16 or fp16, equal those of the fp32 tensor of the same name and
  /// this role, rounded to nearest, ties to even. The writer of the box has compared all their
  /// bits.
  std::string derived_from = {};
  /// The chunks hold their elements uncompressed, row-major, without padding; in memory only.
  bool raw = false;
  friend bool operator==(const BoxRecord&, const BoxRecord&) = default;
};

struct FileRecord {
  std::string name;  ///< File name inside the checkpoint's folder; never a path.
  int64_t bytes = 0;
  std::string
      hash;  ///< Hash of the stored bytes, computed by HashFile (checkpoint/files/file_access.h).
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

/// A writer's report once its file is on storage. EncodePart encodes it for sending.
struct FilePart {
  int64_t step = 0;
  int64_t generation = 0;
  FileRecord file;        ///< A part in memory has no hash.
  int64_t raw_bytes = 0;  ///< Bytes of the elements.
  double seconds = 0;     ///< Time from the snapshot to the end of fsync.
  struct PartBox {
    TensorInfo tensor;
    BoxRecord record;
    friend bool operator==(const PartBox&, const PartBox&) = default;
  };
  std::vector<PartBox> boxes;
};

struct TensorRecord {
  TensorInfo info;
  Digest digest;  ///< Digest of the whole logical tensor, the sum of the boxes' digests.
  std::vector<BoxRecord> boxes;
  friend bool operator==(const TensorRecord&, const TensorRecord&) = default;
};

/// The state that a checkpoint keeps beside tensors. The texts are opaque here.
struct JobState {
  std::string job_hash;
  std::string job_yaml;          ///< The effective job file.
  std::string model;             ///< The model's config.json; empty: unknown.
  std::string plan;              ///< JSON of the plan that wrote it; never needed to load.
  std::string extra;             ///< JSON for the caller; may be empty.
  int64_t samples_consumed = 0;  ///< Position in the data.
  friend bool operator==(const JobState&, const JobState&) = default;
};

struct Manifest {
  int64_t version = kFormatVersion;
  int64_t step = 0;
  int64_t generation = 0;
  double created = 0;  ///< Wall-clock seconds since the epoch.
  JobState job;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  ///< Sorted by (role, name).

  /// The record of a tensor; null: there is none.
  const TensorRecord* Find(const TensorKey& key) const;
  int64_t StoredBytes() const;  ///< Sum of the files' sizes.
  int64_t RawBytes() const;     ///< Sum of the tensors' sizes.
};

}  // namespace heddle::checkpoint
