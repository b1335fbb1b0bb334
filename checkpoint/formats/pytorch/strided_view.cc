#include "checkpoint/formats/pytorch/strided_view.h"

#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

/// A range that is read at once.
constexpr int64_t kBufferBytes = int64_t{4} << 20;
/// A range is read at once when no more than this many times the needed bytes.
constexpr int64_t kMaxWaste = 8;

/// One dimension of a box: how far apart its elements are in the storage and in the output.
struct Dimension {
  int64_t extent = 0;
  int64_t from = 0;
  int64_t to = 0;
};

/// Elements that still have to be read; offsets are in elements.
struct Part {
  int64_t from = 0;
  int64_t to = 0;
  std::vector<Dimension> dimensions;  ///< None has extent 1.

  int64_t Count() const {
    int64_t count = 1;
    for (const Dimension& dimension : dimensions) {
      count *= dimension.extent;
    }
    return count;
  }
  /// Elements of the storage from the first to the last.
  int64_t Span() const {
    int64_t last = 0;
    for (const Dimension& dimension : dimensions) {
      last += (dimension.extent - 1) * dimension.from;
    }
    return last + 1;
  }
  /// Whether storage and output have the same order, without holes.
  bool IsContiguous() const {
    int64_t step = 1;
    for (size_t d = dimensions.size(); d-- > 0;) {
      if (dimensions[d].from != step || dimensions[d].to != step) {
        return false;
      }
      step *= dimensions[d].extent;
    }
    return true;
  }
};

Part WholePart(const StridedView& view, const Box& box) {
  Part part{.from = view.offset, .to = 0, .dimensions = {}};
  int64_t step = 1;
  for (size_t d = box.extent.size(); d-- > 0;) {
    part.from += box.offset[d] * view.stride[d];
    if (box.extent[d] != 1) {
      part.dimensions.insert(part.dimensions.begin(),
                             {.extent = box.extent[d], .from = view.stride[d], .to = step});
    }
    step *= box.extent[d];
  }
  return part;
}

/// Splits the dimension that spans the most of the storage; the result is the second half.
Part SplitHalf(Part& part) {
  size_t widest = 0;
  const auto width = [&](size_t d) {
    return (part.dimensions[d].extent - 1) * part.dimensions[d].from;
  };
  for (size_t d = 1; d < part.dimensions.size(); ++d) {
    widest = width(d) > width(widest) ? d : widest;
  }
  Part second = part;
  Dimension& low = part.dimensions[widest];
  Dimension& high = second.dimensions[widest];
  low.extent /= 2;
  high.extent -= low.extent;
  second.from += low.extent * low.from;
  second.to += low.extent * low.to;
  for (Part* half : {&part, &second}) {
    std::erase_if(half->dimensions, [](const Dimension& one) { return one.extent == 1; });
  }
  return second;
}

/// Copies the part's elements out of `range`, which begins with its first one.
template <size_t element_bytes>
void Gather(const Part& part, const std::byte* range, std::byte* out) {
  if (part.dimensions.empty()) {
    std::memcpy(out, range, element_bytes);
    return;
  }
  const Dimension inner = part.dimensions.back();
  std::vector<int64_t> at(part.dimensions.size() - 1, 0);
  int64_t from = 0;
  int64_t to = 0;
  while (true) {
    for (int64_t i = 0; i < inner.extent; ++i) {
      std::memcpy(out + static_cast<size_t>(to + i * inner.to) * element_bytes,
                  range + static_cast<size_t>(from + i * inner.from) * element_bytes,
                  element_bytes);
    }
    size_t d = at.size();
    for (; d > 0; --d) {
      const Dimension& outer = part.dimensions[d - 1];
      from += outer.from;
      to += outer.to;
      if (++at[d - 1] < outer.extent) {
        break;
      }
      from -= outer.extent * outer.from;
      to -= outer.extent * outer.to;
      at[d - 1] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

void Gather(const Part& part, int64_t element_bytes, const std::byte* range, std::byte* out) {
  switch (element_bytes) {
    case 1:
      return Gather<1>(part, range, out);
    case 2:
      return Gather<2>(part, range, out);
    case 4:
      return Gather<4>(part, range, out);
    default:
      return Gather<8>(part, range, out);
  }
}

}  // namespace

Status CheckView(const StridedView& view, int64_t elements) {
  if (view.shape.size() != view.stride.size() || view.shape.size() > kMaxRank) {
    return DataLossError("{} extents with {} strides", view.shape.size(), view.stride.size());
  }
  const auto count = CheckedElementCount(view.shape);
  if (!count) {
    return DataLossError("shape {} is negative or too large", ToString(view.shape));
  }
  int64_t last = view.offset;
  bool is_inside = view.offset >= 0;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    int64_t reach = 0;
    is_inside =
        is_inside && view.stride[d] >= 0 &&
        (*count == 0 || (!__builtin_mul_overflow(view.shape[d] - 1, view.stride[d], &reach) &&
                         !__builtin_add_overflow(last, reach, &last)));
  }
  if (!is_inside || (*count > 0 && last >= elements)) {
    return DataLossError("offset {}, shape {} and strides {} leave the storage of {} elements",
                         view.offset, ToString(view.shape), ToString(view.stride), elements);
  }
  return Status::Ok();
}

Status ReadView(const StridedView& view,
                const Box& box,
                const SourceFile& file,
                int64_t begin,
                std::span<std::byte> out) {
  if (out.empty()) {
    return Status::Ok();
  }
  const int64_t element_bytes = view.element_bytes;
  std::vector<Part> parts = {WholePart(view, box)};
  Bytes buffer;
  while (!parts.empty()) {
    Part part = std::move(parts.back());
    parts.pop_back();
    const int64_t offset = begin + part.from * element_bytes;
    const int64_t needed = part.Count() * element_bytes;
    const int64_t range = part.Span() * element_bytes;
    const auto to = static_cast<size_t>(part.to * element_bytes);
    if (part.IsContiguous()) {
      HEDDLE_RETURN_IF_ERROR(file.ReadAt(offset, out.subspan(to, static_cast<size_t>(needed))));
    } else if (range <= kBufferBytes && range / kMaxWaste <= needed) {
      buffer.resize(static_cast<size_t>(range));
      HEDDLE_RETURN_IF_ERROR(file.ReadAt(offset, buffer));
      Gather(part, element_bytes, buffer.data(), out.data() + to);
    } else {
      parts.push_back(SplitHalf(part));
      parts.push_back(std::move(part));
    }
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
