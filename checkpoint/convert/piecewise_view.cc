#include "checkpoint/convert/piecewise_view.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

/// `box` of a piece, as offsets in the file: moved from the view's coordinates, and turned.
Box InputBox(const Piece& piece, const Box& part) {
  Box local = Shifted(part, piece.output_box.offset, -1);
  if (piece.transpose) {
    std::swap(local.offset[0], local.offset[1]);
    std::swap(local.extent[0], local.extent[1]);
  }
  return Shifted(local, piece.input_box.offset, 1);
}

void Transpose(const Bytes& from, int64_t rows, int64_t columns, int64_t element, Bytes& to) {
  constexpr int64_t kTile = 32;  // Both sides of a tile stay in the first cache.
  to.resize(from.size());
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
        for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c) {
          std::memcpy(to.data() + (c * rows + r) * element,
                      from.data() + (r * columns + c) * element, static_cast<size_t>(element));
        }
      }
    }
  }
}

class View : public TensorSource {
 public:
  View(std::unique_ptr<TensorSource> source, std::vector<ViewedTensor> viewed)
      : source_(std::move(source)) {
    for (ViewedTensor& tensor : viewed) {
      tensors_.push_back(std::move(tensor.tensor));
      pieces_.push_back(std::move(tensor.pieces));
    }
  }

  std::string format() const override { return source_->format(); }
  std::string config() const override { return source_->config(); }
  int64_t step() const override { return source_->step(); }
  const std::vector<FileTensor>& tensors() const override { return tensors_; }

  Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const override {
    HEDDLE_RETURN_IF_ERROR(
        CheckInside(tensors_[tensor].shape, box).WithContext("tensor '{}'", tensors_[tensor].name));
    for (const Piece& piece : pieces_[tensor]) {
      const auto common =
          ElementCount(box.extent) > 0 ? Intersect(piece.output_box, box) : std::nullopt;
      if (common) {
        HEDDLE_RETURN_IF_ERROR(
            ReadPiece(piece, *common, SizeOf(*tensors_[tensor].dtype), box, out));
      }
    }
    return Status::Ok();
  }

 private:
  Status ReadPiece(const Piece& piece,
                   const Box& part,
                   int64_t element,
                   const Box& box,
                   std::span<std::byte> out) const {
    const Box input = InputBox(piece, part);
    if (!piece.transpose && part == box) {
      return source_->Read(piece.input, input, out);
    }
    Bytes read(static_cast<size_t>(ElementCount(part.extent) * element));
    HEDDLE_RETURN_IF_ERROR(source_->Read(piece.input, input, read));
    if (piece.transpose) {
      Bytes turned;
      Transpose(read, input.extent[0], input.extent[1], element, turned);
      read = std::move(turned);
    }
    CopyPart(read.data(), part, out.data(), box, part, element);
    return Status::Ok();
  }

  std::unique_ptr<TensorSource> source_;
  std::vector<FileTensor> tensors_;
  std::vector<std::vector<Piece>> pieces_;
};

}  // namespace

std::unique_ptr<TensorSource> MakePiecewiseView(std::unique_ptr<TensorSource> source,
                                                std::vector<ViewedTensor> viewed) {
  return std::make_unique<View>(std::move(source), std::move(viewed));
}

}  // namespace heddle::checkpoint
