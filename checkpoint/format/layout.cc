#include "checkpoint/format/layout.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace heddle::checkpoint {

std::optional<int64_t> CheckedElementCount(const Shape& shape) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kLimit) {
      return std::nullopt;
    }
    empty = empty || extent == 0;
    if (extent > 0 && count > kLimit / extent) {
      return std::nullopt;
    }
    count *= std::max<int64_t>(extent, 1);
  }
  return empty ? 0 : count;
}

Shape ChooseChunk(const Shape& extent, int64_t element_size, int64_t chunk_bytes) {
  Shape chunk = extent;
  while (ElementCount(chunk) * element_size > chunk_bytes) {
    auto longest = std::max_element(chunk.begin(), chunk.end());
    if (*longest == 1) {
      break;
    }
    *longest = (*longest + 1) / 2;
  }
  return chunk;
}

Shape ContiguousTile(const Shape& extent, int64_t elements) {
  Shape tile = extent;
  int64_t inner = 1;
  for (size_t d = extent.size(); d-- > 0;) {
    tile[d] = std::clamp<int64_t>(elements / inner, 1, extent[d]);
    inner = tile[d] == extent[d] ? inner * extent[d] : elements + 1;
  }
  return tile;
}

ChunkGrid::ChunkGrid(Shape extent, Shape chunk)
    : extent_(std::move(extent)),
      chunk_(std::move(chunk)) {
  for (size_t d = 0; d < extent_.size(); ++d) {
    grid_.push_back((extent_[d] + chunk_[d] - 1) / chunk_[d]);
    count_ *= grid_.back();
    chunk_elements_ *= chunk_[d];
  }
}

Box ChunkGrid::Full(int64_t index) const {
  Box box{.offset = Shape(extent_.size()), .extent = chunk_};
  for (size_t d = extent_.size(); d-- > 0;) {
    box.offset[d] = index % grid_[d] * chunk_[d];
    index /= grid_[d];
  }
  return box;
}

Box ChunkGrid::Clipped(int64_t index) const {
  Box box = Full(index);
  for (size_t d = 0; d < extent_.size(); ++d) {
    box.extent[d] = std::min(box.extent[d], extent_[d] - box.offset[d]);
  }
  return box;
}

std::vector<int64_t> ChunkGrid::Touching(const Box& part) const {
  std::vector<int64_t> indices = {0};
  for (size_t d = 0; d < extent_.size(); ++d) {
    const int64_t first = part.offset[d] / chunk_[d];
    const int64_t last = (part.offset[d] + part.extent[d] - 1) / chunk_[d];
    std::vector<int64_t> next;
    for (const int64_t index : indices) {
      for (int64_t i = first; i <= last; ++i) {
        next.push_back(index * grid_[d] + i);
      }
    }
    indices = std::move(next);
  }
  return indices;
}

Box Shifted(const Box& box, const Shape& by, int64_t sign) {
  Box moved = box;
  for (size_t d = 0; d < by.size(); ++d) {
    moved.offset[d] += sign * by[d];
  }
  return moved;
}

namespace {

/// Elements from one index of dimension d to the next, row-major.
Shape Strides(const Shape& extent) {
  Shape strides(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * extent[d];
  }
  return strides;
}

int64_t Position(const Shape& index, const Shape& origin, const Shape& strides) {
  int64_t position = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    position += (index[d] - origin[d]) * strides[d];
  }
  return position;
}

/// Walks `part` in runs that are contiguous in both `a` and `b`: calls run(position in a, position
/// in b, elements). Trailing dimensions that `part` fills in both buffers are one run.
template <typename Run>
void WalkRuns(const Box& a, const Box& b, const Box& part, const Run& run) {
  if (ElementCount(part.extent) == 0) {
    return;
  }
  const size_t rank = part.extent.size();
  size_t outer = rank;  // Dimensions [0, outer) are walked one index at a time.
  int64_t elements = 1;
  while (outer > 0) {
    --outer;
    elements *= part.extent[outer];
    if (part.extent[outer] != a.extent[outer] || part.extent[outer] != b.extent[outer]) {
      break;
    }
  }
  const Shape strides_a = Strides(a.extent);
  const Shape strides_b = Strides(b.extent);
  Shape index = part.offset;
  for (;;) {
    run(Position(index, a.offset, strides_a), Position(index, b.offset, strides_b), elements);
    size_t d = outer;
    for (; d > 0; --d) {
      if (++index[d - 1] < part.offset[d - 1] + part.extent[d - 1]) {
        break;
      }
      index[d - 1] = part.offset[d - 1];
    }
    if (d == 0) {
      return;
    }
  }
}

}  // namespace

void ForEachRun(const Shape& global_shape,
                const Box& held,
                const Box& part,
                const std::function<void(int64_t, int64_t, int64_t)>& run) {
  WalkRuns(held, WholeBox(global_shape), part,
           [&](int64_t first, int64_t global, int64_t elements) { run(first, elements, global); });
}

void CopyPart(const std::byte* source,
              const Box& source_box,
              std::byte* target,
              const Box& target_box,
              const Box& part,
              int64_t element_size) {
  WalkRuns(source_box, target_box, part, [&](int64_t from, int64_t to, int64_t elements) {
    std::memcpy(target + to * element_size, source + from * element_size,
                static_cast<size_t>(elements * element_size));
  });
}

namespace {

/// A box that may lie anywhere: its end is not computed, because it may not be a number.
std::string Describe(const Box& box) {
  return fmt::format("{} from {}", ToString(box.extent), ToString(box.offset));
}

}  // namespace

Status CheckInside(const Shape& shape, const Box& box) {
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size()) {
    return InvalidArgumentError("box {} has not the rank of shape {}", Describe(box),
                                ToString(shape));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] < 0 || box.extent[d] < 0 || box.offset[d] > shape[d] ||
        box.extent[d] > shape[d] - box.offset[d]) {
      return InvalidArgumentError("box {} leaves shape {}", Describe(box), ToString(shape));
    }
  }
  return Status::Ok();
}

namespace {

/// The dimension along which a sweep has the fewest boxes open at once: the one with most distinct
/// offsets.
size_t SweepDimension(const std::vector<const Box*>& boxes, size_t rank) {
  size_t best = 0;
  size_t most = 0;
  for (size_t d = 0; d < rank; ++d) {
    std::set<int64_t> offsets;
    for (const Box* box : boxes) {
      offsets.insert(box->offset[d]);
    }
    if (offsets.size() > most) {
      most = offsets.size();
      best = d;
    }
  }
  return best;
}

}  // namespace

Status CheckCoverage(const Shape& shape, std::span<const Box* const> boxes) {
  const auto whole = CheckedElementCount(shape);
  if (!whole) {
    return InvalidArgumentError("shape {} is negative or too large", ToString(shape));
  }
  std::vector<const Box*> filled;
  for (const Box* box : boxes) {
    HEDDLE_RETURN_IF_ERROR(CheckInside(shape, *box));
    if (ElementCount(box->extent) > 0) {
      filled.push_back(box);
    }
  }
  const size_t d = SweepDimension(filled, shape.size());
  if (!shape.empty()) {
    std::sort(filled.begin(), filled.end(),
              [d](const Box* a, const Box* b) { return a->offset[d] < b->offset[d]; });
  }
  // Disjoint boxes inside the shape cannot hold more than its elements, so `covered` cannot
  // overflow before an overlap is found.
  int64_t covered = 0;
  for (size_t i = 0; i < filled.size(); ++i) {
    for (size_t j = i + 1; j < filled.size(); ++j) {
      if (!shape.empty() && filled[j]->offset[d] >= filled[i]->offset[d] + filled[i]->extent[d]) {
        break;
      }
      if (Intersect(*filled[i], *filled[j])) {
        return InvalidArgumentError("boxes {} and {} overlap", ToString(*filled[i]),
                                    ToString(*filled[j]));
      }
    }
    covered += ElementCount(filled[i]->extent);
  }
  if (covered != *whole) {
    return InvalidArgumentError("{} of {} elements are in no box", *whole - covered, *whole);
  }
  return Status::Ok();
}

std::string StepFolderName(int64_t step) {
  return fmt::format("step-{:08}", step);
}

namespace {

std::optional<int64_t> ParseDigits(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty() || value < 0) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<int64_t> ParseStepFolderName(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + 8) {
    return std::nullopt;
  }
  return ParseDigits(name.substr(kPrefix.size()));
}

std::optional<int64_t> StepOfFolder(std::string_view path) {
  path = path.substr(0, path.find_last_not_of('/') + 1);
  return ParseStepFolderName(path.substr(path.find_last_of('/') + 1));
}

std::string TemporaryFolderName(int64_t step, int64_t generation) {
  return fmt::format(".tmp-{}.g{}", StepFolderName(step), generation);
}

std::optional<int64_t> ParseTemporaryFolderName(std::string_view name) {
  constexpr std::string_view kPrefix = ".tmp-";
  const size_t dot = name.rfind(".g");
  if (!name.starts_with(kPrefix) || dot == std::string_view::npos || dot < kPrefix.size() ||
      !ParseStepFolderName(name.substr(kPrefix.size(), dot - kPrefix.size()))) {
    return std::nullopt;
  }
  return ParseDigits(name.substr(dot + 2));
}

std::optional<int64_t> GenerationOfFile(std::string_view name) {
  constexpr std::string_view kSuffix = ".h5";
  const size_t mark = name.rfind(".g");
  if (!name.ends_with(kSuffix) || mark == std::string_view::npos ||
      mark + 2 + kSuffix.size() >= name.size()) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(mark + 2, name.size() - mark - 2 - kSuffix.size());
  int64_t generation = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), generation);
  return error == std::errc() && end == digits.data() + digits.size() && generation >= 0
             ? std::optional(generation)
             : std::nullopt;
}

std::string EscapeName(std::string_view name) {
  std::string escaped;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (c <= 0x20 || c == 0x7F || c == '/' || c == '%' || c == '@' || (c == '.' && i == 0)) {
      escaped += fmt::format("%{:02X}", c);
    } else {
      escaped += name[i];
    }
  }
  return escaped.empty() ? "%" : escaped;
}

std::string DatasetName(std::string_view name,
                        std::string_view role,
                        const Shape& global_shape,
                        const Box& box) {
  const std::string whole = fmt::format("/{}/{}", EscapeName(role), EscapeName(name));
  return box == WholeBox(global_shape) ? whole
                                       : fmt::format("{}@{}", whole, fmt::join(box.offset, ","));
}

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace heddle::checkpoint
