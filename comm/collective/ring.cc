// Ring reduce-scatter and all-gather (Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002), with
// shares of any size. Segment i's partial sum starts at position i + 1 and travels i + 2, i + 3, …
// to i, each member adding its own part; then the whole segments travel on from their owners. A
// step handles its segment piece by piece: a piece goes on as soon as it is folded, so uneven
// segments cost no waiting. Step s = 0 … n - 2: position p sends segment p - 1 - s and receives
// segment p - 2 - s (modulo n).
#include <algorithm>
#include <array>

#include "comm/collective/collective.h"
#include "comm/collective/fold.h"
#include "comm/collective/reduce.h"

namespace heddle::comm {

namespace {

int Around(int position, int size) {
  return ((position % size) + size) % size;
}

/// Pieces of the last step that may be in flight at once.
constexpr int64_t kLastPieces = 4;

int64_t PieceCount(int64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes;
}

template <typename Byte>
std::span<Byte> Piece(std::span<Byte> segment, int64_t piece, int64_t piece_bytes) {
  const auto size = static_cast<int64_t>(segment.size());
  const int64_t offset = piece * piece_bytes;
  return segment.subspan(static_cast<size_t>(offset),
                         static_cast<size_t>(std::min(piece_bytes, size - offset)));
}

class RingReduction {
 public:
  RingReduction(Collective& call,
                std::span<const std::byte> input,
                std::span<std::byte> output,
                const Segments& segments,
                DType dtype,
                ReduceOp op)
      : call_(call),
        input_(input),
        output_(output),
        segments_(segments),
        dtype_(dtype),
        op_(op),
        partial_type_(PartialType(dtype, op)),
        next_(Around(call.position() + 1, call.size())),
        previous_(Around(call.position() - 1, call.size())) {}

  Status Run() {
    const int steps = call_.size() - 1;
    HEDDLE_RETURN_IF_ERROR(Post(0));
    SendOwn();
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        HEDDLE_RETURN_IF_ERROR(Post(step + 1));
      }
      HEDDLE_RETURN_IF_ERROR(Fold(step));
    }
    return call_.WaitAll();
  }

 private:
  /// Partial sums of one step: received, folded, sent on in the next step. Three in turn, so that
  /// the next step's receives are posted before this step's folds. Those of the last step go no
  /// further: a few places that stay in the cache do for all its pieces, in turn.
  struct Buffer {
    std::span<std::byte> bytes;
    std::vector<Collective::Pending> arriving;
    std::vector<Collective::Pending> leaving;
  };
  Buffer& BufferOf(int step) { return buffers_[static_cast<size_t>(step) % buffers_.size()]; }
  bool IsLast(int step) const { return step == call_.size() - 2; }
  int Arriving(int step) const { return Around(call_.position() - 2 - step, call_.size()); }

  std::span<const std::byte> Local(int segment) const {
    const int64_t element = SizeOf(dtype_);
    return Slice(input_, segments_.begin(segment) * element, segments_.count(segment) * element);
  }

  Status Post(int step) {
    Buffer& buffer = BufferOf(step);
    for (const auto& pending : buffer.leaving) {
      HEDDLE_RETURN_IF_ERROR(call_.Wait(pending));
    }
    buffer.leaving.clear();
    buffer.arriving.clear();
    const int64_t bytes = PartialBytes(step);
    const int64_t room = IsLast(step) ? std::min(bytes, kLastPieces * kPieceBytes) : bytes;
    if (static_cast<int64_t>(buffer.bytes.size()) < room) {
      buffer.bytes = call_.Scratch(room);
    }
    const int64_t pieces = PieceCount(bytes);
    for (int64_t piece = 0; piece < (IsLast(step) ? std::min(pieces, kLastPieces) : pieces);
         ++piece) {
      Receive(step, piece);
    }
    return Status::Ok();
  }

  int64_t PartialBytes(int step) const {
    return segments_.count(Arriving(step)) * SizeOf(partial_type_);
  }
  /// Where a piece of a step's partial sums lies.
  std::span<std::byte> Partial(int step, int64_t piece) {
    const int64_t size = std::min(kPieceBytes, PartialBytes(step) - piece * kPieceBytes);
    const int64_t place = IsLast(step) ? piece % kLastPieces : piece;
    return Slice(BufferOf(step).bytes, place * kPieceBytes, size);
  }
  void Receive(int step, int64_t piece) {
    BufferOf(step).arriving.push_back(
        call_.Recv(previous_, Phase::kRingReduce, step, piece, Partial(step, piece)));
  }

  void SendOwn() {
    std::span<const std::byte> local = Local(previous_);
    if (partial_type_ != dtype_) {
      const auto widened = call_.Scratch(segments_.count(previous_) * SizeOf(partial_type_));
      Convert(local, dtype_, widened, partial_type_);
      local = widened;
    }
    for (int64_t piece = 0; piece < PieceCount(static_cast<int64_t>(local.size())); ++piece) {
      call_.Send(next_, Phase::kRingReduce, 0, piece, Piece(local, piece, kPieceBytes));
    }
  }

  Status Fold(int step) {
    const bool last = IsLast(step);
    const int64_t narrow_piece = kPieceBytes / SizeOf(partial_type_) * SizeOf(dtype_);
    Buffer& buffer = BufferOf(step);
    const auto local = Local(Arriving(step));
    const int64_t pieces = PieceCount(PartialBytes(step));
    for (int64_t piece = 0; piece < pieces; ++piece) {
      HEDDLE_RETURN_IF_ERROR(call_.Wait(buffer.arriving[static_cast<size_t>(piece)]));
      const auto partial = Partial(step, piece);
      const auto own = Piece(local, piece, narrow_piece);
      if (partial_type_ == dtype_) {
        const std::array<const std::byte*, 2> inputs{partial.data(), own.data()};
        std::byte* const target =
            last ? Piece(output_, piece, narrow_piece).data() : partial.data();
        FoldAll(inputs, std::span(&target, 1), partial.size(), dtype_, op_);
      } else {
        if (widened_.size() < partial.size()) {
          widened_ = call_.Scratch(kPieceBytes);
        }
        const auto terms = widened_.first(partial.size());
        Convert(own, dtype_, terms, partial_type_);
        FoldInto(partial, terms, partial_type_, op_);
        if (last) {
          Convert(partial, partial_type_, Piece(output_, piece, narrow_piece), dtype_);
        }
      }
      if (!last) {
        buffer.leaving.push_back(call_.Send(next_, Phase::kRingReduce, step + 1, piece, partial));
      } else if (piece + kLastPieces < pieces) {
        Receive(step, piece + kLastPieces);
      }
    }
    return Status::Ok();
  }

  Collective& call_;
  const std::span<const std::byte> input_;
  const std::span<std::byte> output_;
  const Segments& segments_;
  const DType dtype_;
  const ReduceOp op_;
  const DType partial_type_;
  const int next_;
  const int previous_;
  std::array<Buffer, 3> buffers_;
  std::span<std::byte> widened_;  ///< A piece of 16-bit terms in fp32.
};

}  // namespace

Status RingReduceScatter(Collective& call,
                         std::span<const std::byte> input,
                         std::span<std::byte> output,
                         const Segments& segments,
                         DType dtype,
                         ReduceOp op) {
  return RingReduction(call, input, output, segments, dtype, op).Run();
}

Status RingAllGather(Collective& call,
                     std::span<std::byte> output,
                     const Segments& segments,
                     int64_t element) {
  const int size = call.size();
  const int next = Around(call.position() + 1, size);
  const int previous = Around(call.position() - 1, size);
  const auto segment = [&](int i) {
    return Slice(output, segments.begin(i) * element, segments.count(i) * element);
  };
  std::vector<std::vector<Collective::Pending>> arriving(static_cast<size_t>(size - 1));
  for (int step = 0; step < size - 1; ++step) {
    const auto into = segment(Around(call.position() - 1 - step, size));
    for (int64_t piece = 0; piece < PieceCount(static_cast<int64_t>(into.size())); ++piece) {
      arriving[static_cast<size_t>(step)].push_back(
          call.Recv(previous, Phase::kRingGather, step, piece, Piece(into, piece, kPieceBytes)));
    }
  }
  for (int step = 0; step < size - 1; ++step) {
    const auto from = segment(Around(call.position() - step, size));
    for (int64_t piece = 0; piece < PieceCount(static_cast<int64_t>(from.size())); ++piece) {
      if (step > 0) {
        HEDDLE_RETURN_IF_ERROR(
            call.Wait(arriving[static_cast<size_t>(step) - 1][static_cast<size_t>(piece)]));
      }
      call.Send(next, Phase::kRingGather, step, piece, Piece(from, piece, kPieceBytes));
    }
  }
  return call.WaitAll();
}

}  // namespace heddle::comm
