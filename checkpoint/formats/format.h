/// \file
/// Model files of any format behind one interface: what tensors there are, their elements by box,
/// and writing them as one stream. A format is one file of this folder, which registers itself;
/// what a file is, is told by its content, never by its name.
///
/// Everything that is read is untrusted: a source checks every length, offset and name of its file
/// when it is opened, so that whoever holds it may allocate by its numbers.
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

/// No model has more tensors: it bounds what a hostile file can make its reader hold.
inline constexpr size_t kMaximumTensors = 150'000;

/// A tensor as its file describes it.
struct FileTensor {
  std::string name;
  std::string role;  ///< Of the native format ("master", "exp_avg", …); else empty.
  std::string type;  ///< The file's own word for the element type, for messages: "F8_E4M3".
  std::optional<DType> dtype;  ///< None: a type that Heddle does not know. It is listed, not read.
  Shape shape;
  int64_t bytes = 0;         ///< Of the elements.
  int64_t stored_bytes = 0;  ///< In the file; less when compressed.
};

/// An opened model. Thread: any; reads may run at the same time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// The format's name: "native", "safetensors", "pytorch".
  virtual std::string format() const = 0;
  /// In an order of the format's own; names are unique within a role.
  virtual const std::vector<FileTensor>& tensors() const = 0;
  /// Reads box `box` of `tensors()[tensor]`, which has a dtype, row-major into `out`:
  /// ElementCount(box.extent) * SizeOf(dtype) bytes. Errors: kInvalidArgument for a box outside the
  /// tensor; kDataLoss for damage, naming file and tensor; those of reading.
  virtual Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const = 0;
  /// The text of the model's config.json; empty when there is none.
  virtual std::string config() const { return {}; }
  /// The training step; 0 where the format has none.
  virtual int64_t step() const { return 0; }
};

/// A tensor to be written.
struct OutputTensor {
  std::string name;
  std::string role;  ///< For the native format alone.
  DType dtype = DType::kF32;
  Shape shape;
  /// For the native format alone: the elements are those of the fp32 tensor of the same name and
  /// this role, rounded to nearest even. Whoever says so has compared them; they come all the same,
  /// for their digest, and are not stored.
  std::string derived_from = {};
  int64_t bytes() const { return ElementCount(shape) * SizeOf(dtype); }
};

struct SinkRequest {
  std::string path;
  bool replace = false;  ///< What lies there is replaced in one rename; else it stays: an error.
  /// In the order in which their elements will come.
  std::vector<OutputTensor> tensors;
  std::string config;  ///< Text of config.json; empty: none is written.
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;
  int64_t step = 0;
  int threads = 1;  ///< That may compress, where the format does.
  /// A hash of all that decides the elements. With one, the files that a killed process finished
  /// are kept by the next request of the same identity; empty: none are.
  std::string identity = {};
};

/// A model being written. It appears at its path, whole and on storage, when Finish succeeds; the
/// destructor of one that was not finished removes what it wrote. Thread: one caller at a time.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  /// How many of the request's first tensors an earlier process has finished: the elements to come
  /// begin with the tensor after them.
  virtual size_t finished() const { return 0; }
  /// What became of an earlier attempt, as one line for the user; empty when there was none.
  virtual std::string history() const { return {}; }
  /// The next elements, row-major, of the request's tensors one after the other. One call's bytes
  /// are whole elements of one tensor. Errors: those of writing (kResourceExhausted: disk full).
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  /// Every element has come. Errors: as Append; kFailedPrecondition when some are missing.
  virtual Status Finish() = 0;
};

struct Format {
  std::string name;  ///< As in `--to NAME`.
  /// A folder with files of several formats is of the one with the lowest rank.
  int rank = 0;
  /// Whether `path` (a file or a folder, which exists) is of this format. Looks at content,
  /// cheaply.
  std::function<bool(const std::string& path)> recognise;
  std::function<Result<std::unique_ptr<TensorSource>>(const std::string& path)> open;
  std::function<Result<std::unique_ptr<TensorSink>>(SinkRequest request)> create;
};

/// Adds a format for the life of the process; one a file, at namespace scope.
class FormatRegistration {
 public:
  explicit FormatRegistration(Format format);
};

/// All formats, by rank.
const std::vector<Format>& Formats();

/// Errors: kInvalidArgument naming the formats that exist.
Result<const Format*> FindFormat(const std::string& name);

/// Opens `path` as what it is; a URL is a native checkpoint's. Errors: kInvalidArgument when it is
/// nothing that is known (a pointer of Git LFS, a web page, an empty file … are named for what they
/// are), kNotFound, kDataLoss.
Result<std::unique_ptr<TensorSource>> OpenModel(const std::string& path);

}  // namespace heddle::checkpoint
