/// \file
/// The interface of model files of any format: listing tensors, reading their elements by box, and
/// writing them as one stream. A format is one file of this folder, which registers itself. The
/// format of a file is recognised by its content, never by its name.
///
/// Files are untrusted: a source checks every length, offset and name of its file when it is
/// opened, so that its callers may allocate by its numbers.
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
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace heddle::checkpoint {

/// The most tensors of a model; it bounds the memory that a hostile file can make its reader use.
inline constexpr size_t kMaxTensors = 150'000;

/// A tensor as its file describes it.
struct FileTensor {
  std::string name;
  std::string role;  ///< Role in the native format ("master", "exp_avg", …); else empty.
  std::string type;  ///< The file's name of the element type, for messages: "F8_E4M3".
  std::optional<DType> dtype;  ///< None: Heddle does not know the type; the tensor is only listed.
  Shape shape;
  int64_t bytes = 0;         ///< Bytes of the elements.
  int64_t stored_bytes = 0;  ///< Bytes in the file, which may be compressed.
};

/// An opened model. Thread: any; reads may run concurrently.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// The format's name: "native", "safetensors", "pytorch".
  virtual std::string format() const = 0;
  /// The tensors, in an order that the format chooses; names are unique within a role.
  virtual const std::vector<FileTensor>& tensors() const = 0;
  /// Reads box `box` of `tensors()[tensor]`, which has a dtype, row-major into `out`:
  /// ElementCount(box.extent) * SizeOf(dtype) bytes. Errors: kInvalidArgument for a box outside the
  /// tensor; kDataLoss for damage, naming file and tensor; those of reading.
  virtual Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const = 0;
  /// The text of the model's config.json; empty: there is none.
  virtual std::string config() const { return {}; }
  /// The training step; 0 if the format has none.
  virtual int64_t step() const { return 0; }
};

/// A tensor to be written.
struct OutputTensor {
  std::string name;
  std::string role;  ///< Used by the native format only.
  DType dtype = DType::kF32;
  Shape shape;
  /// Used by the native format only. If not empty, the elements equal those of the fp32 tensor of
  /// the same name and this role, rounded to nearest even; the caller has compared them. They must
  /// still be appended, for their digest, and are not stored.
  std::string derived_from = {};
  int64_t bytes() const { return ElementCount(shape) * SizeOf(dtype); }
};

struct SinkRequest {
  std::string path;
  bool replace = false;  ///< Replace what is at `path`, in one rename; else that is an error.
  /// The tensors in the order in which their elements will be appended.
  std::vector<OutputTensor> tensors;
  std::string config;  ///< Text of config.json; empty: none is written.
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;
  int64_t step = 0;
  int threads = 1;  ///< Threads for compression, if the format compresses.
  /// A hash of everything that determines the elements. A request keeps the files that a killed
  /// process with a request of the same identity has finished; empty: it keeps none.
  std::string identity = {};
};

/// A model being written. It appears at its path, complete and on storage, when Finish succeeds.
/// The destructor removes the files of a model that was not finished. Thread: one caller at a time.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  /// Number of the request's first tensors that an earlier process has finished. The first appended
  /// elements are those of the tensor after them.
  virtual size_t finished() const { return 0; }
  /// A line for the user on whether an earlier attempt is resumed; empty: there was none.
  virtual std::string history() const { return {}; }
  /// Appends the next elements, row-major, of the request's tensors in their order. The bytes of a
  /// call are whole elements of one tensor. Errors: those of writing (kResourceExhausted: disk
  /// full).
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  /// Completes the model after all elements were appended. Errors: those of Append;
  /// kFailedPrecondition (elements are missing).
  virtual Status Finish() = 0;
};

struct Format {
  std::string name;  ///< Name for `--to NAME`.
  /// A folder with files of several formats has the format with the lowest rank.
  int rank = 0;
  /// Whether `path` (an existing file or folder) has this format. Reads a little of its content.
  std::function<bool(const std::string& path)> recognise;
  std::function<Result<std::unique_ptr<TensorSource>>(const std::string& path)> open;
  std::function<Result<std::unique_ptr<TensorSink>>(SinkRequest request)> create;
};

/// Registers a format for the life of the process; defined once per format, at namespace scope.
class FormatRegistration {
 public:
  explicit FormatRegistration(Format format);
};

/// All formats, by rank.
const std::vector<Format>& Formats();

/// The format `name`. Errors: kInvalidArgument, which names the existing formats.
Result<const Format*> FindFormat(const std::string& name);

/// Opens `path` in the format that it has; a URL is that of a native checkpoint. Errors:
/// kInvalidArgument (no known format; a pointer of Git LFS, a web page, an empty file … is reported
/// as such), kNotFound, kDataLoss.
Result<std::unique_ptr<TensorSource>> OpenModel(const std::string& path);

}  // namespace heddle::checkpoint
