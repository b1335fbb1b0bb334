/// \file
/// The pure geometry of a checkpoint: chunk grids, row-major copies between boxes, coverage, and
/// the names of folders, files and datasets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor/shape.h"

namespace heddle::checkpoint {

inline constexpr size_t kMaxRank = 16;
/// Widest column of tensor names in a listing, so that one long name does not pad every line.
inline constexpr size_t kWidestName = 80;

/// The number of elements; nullopt: an extent is negative or the product exceeds 2^62.
std::optional<int64_t> CheckedElementCount(const Shape& shape);

/// A chunk shape for a box of `extent`: at most `chunk_bytes` raw (and at least half of it when the
/// box is larger), halving the longest side first, so that a slice along any dimension touches few
/// chunks. `extent` has elements. A scalar has chunk shape [].
Shape ChooseChunk(const Shape& extent, int64_t element_size, int64_t chunk_bytes);

/// The shape of the largest tile of at most `elements` elements that are contiguous in a row-major
/// tensor of `extent`: 1 in the outer dimensions, some of the next, all of the rest. Tiles of this
/// shape, in the order of ChunkGrid, traverse a tensor from front to back. `extent` has elements.
Shape ContiguousTile(const Shape& extent, int64_t elements);

/// The tiling of a box by chunks, in row-major order of the chunks.
class ChunkGrid {
 public:
  /// Both shapes have the same rank and positive extents; no extent of `chunk` exceeds that of
  /// `extent`.
  ChunkGrid(Shape extent, Shape chunk);
  int64_t count() const { return count_; }
  /// Elements of a full chunk, padding included.
  int64_t chunk_elements() const { return chunk_elements_; }
  /// Chunk `index` clipped to the box, in the box's own coordinates.
  Box Clipped(int64_t index) const;
  /// Chunk `index` with its padding, in the box's own coordinates.
  Box Full(int64_t index) const;
  /// The chunks that share an element with `part` (in the box's own coordinates), ascending.
  std::vector<int64_t> Touching(const Box& part) const;

 private:
  Shape extent_;
  Shape chunk_;
  Shape grid_;
  int64_t count_ = 1;
  int64_t chunk_elements_ = 1;
};

/// `box` with its offset moved by `sign` * `by`; `sign` is 1 or -1.
Box Shifted(const Box& box, const Shape& by, int64_t sign);

/// Calls `run(first_element_in_held, elements, first_global_index)` for every maximal contiguous
/// run of `part` in a row-major buffer that holds `held`. `part` lies inside `held`, and `held`
/// inside `global_shape`; all are in the tensor's coordinates.
void ForEachRun(const Shape& global_shape,
                const Box& held,
                const Box& part,
                const std::function<void(int64_t, int64_t, int64_t)>& run);

/// Copies the elements of `part` from a row-major buffer that holds `source_box` to one that holds
/// `target_box`. `part` lies inside both.
void CopyPart(const std::byte* source,
              const Box& source_box,
              std::byte* target,
              const Box& target_box,
              const Box& part,
              int64_t element_size);

/// Checks that `box` has the rank of `shape` and lies in it. Errors: kInvalidArgument.
Status CheckInside(const Shape& shape, const Box& box);

/// Checks that the boxes cover `shape` exactly once; boxes without elements do not count.
/// Errors: kInvalidArgument, which names a box that overlaps another or leaves the tensor, or the
/// number of elements that no box covers.
Status CheckCoverage(const Shape& shape, std::span<const Box* const> boxes);

/// The name of a step's folder, "step-00000040"; names sort by step. `step` is in [0, 10^8).
std::string StepFolderName(int64_t step);
/// The step of a name of StepFolderName; nullopt: another name.
std::optional<int64_t> ParseStepFolderName(std::string_view name);
/// The step in the last component of a checkpoint folder's path; nullopt: it names none.
std::optional<int64_t> StepOfFolder(std::string_view path);
/// The name of the folder in which a generation writes a step until it is committed:
/// ".tmp-step-00000040.g3".
std::string TemporaryFolderName(int64_t step, int64_t generation);
/// The generation of a name of TemporaryFolderName; nullopt: another name.
std::optional<int64_t> ParseTemporaryFolderName(std::string_view name);

/// The generation whose writer made a file of a checkpoint, by the file's name, "w0.g3.h5", with or
/// without a path or URL before it; nullopt: the name has none.
std::optional<int64_t> GenerationOfFile(std::string_view name);

/// Encodes a tensor's or a worker's name as one HDF5 link or file name: percent-encodes '/', '%',
/// '@', control bytes, space and a leading '.'; an empty name becomes "%".
std::string EscapeName(std::string_view name);

/// The HDF5 path of a box's dataset: "/master/layers.0.wq" for a box that is the whole tensor,
/// "/master/layers.0.wq@512,0" for another (the numbers are the box's offset).
std::string DatasetName(std::string_view name,
                        std::string_view role,
                        const Shape& global_shape,
                        const Box& box);

/// Whether `name` is the name of a file inside a folder: not empty, without '/' and NUL, not "." or
/// "..", at most 255 bytes.
bool IsPlainFileName(std::string_view name);

}  // namespace heddle::checkpoint
