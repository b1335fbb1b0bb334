// Ring reduce-scatter and all-gather (Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002), with
// shares of any size. Segment i's partial sum starts at position i + 1 and travels i + 2, i + 3, …
// to i, each member adding its own part; then the whole segments travel on from their owners. A
// step handles its segment piece by piece: a piece goes on as soon as it is folded, so uneven
// segments cost no waiting. Step s = 0 … n - 2: position p sends segment p - 1 - s and receives
// segment p - 2 - s (modulo n).
#include <algorithm>
#include <array>

#include "comm/collective.h"
#include "comm/reduce.h"

namespace heddle::comm {

namespace {

int Around(int position, int size) {
  return ((position % size) + size) % size;
}

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
  /// the next step's receives are posted before this step's folds.
  struct Buffer {
    Bytes bytes;
    std::vector<Collective::Pending> arriving;
    std::vector<Collective::Pending> leaving;
  };
  Buffer& BufferOf(int step) { return buffers_[static_cast<size_t>(step) % buffers_.size()]; }
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
    const int64_t bytes = segments_.count(Arriving(step)) * SizeOf(partial_type_);
    buffer.bytes.resize(static_cast<size_t>(bytes));
    for (int64_t piece = 0; piece < PieceCount(bytes); ++piece) {
      buffer.arriving.push_back(call_.Recv(previous_, Phase::kRingReduce, step, piece,
                                           Piece(std::span(buffer.bytes), piece, kPieceBytes)));
    }
    return Status::Ok();
  }

  void SendOwn() {
    std::span<const std::byte> local = Local(previous_);
    if (partial_type_ != dtype_) {
      own_.resize(static_cast<size_t>(segments_.count(previous_) * SizeOf(partial_type_)));
      Convert(local, dtype_, own_, partial_type_);
      local = own_;
    }
    for (int64_t piece = 0; piece < PieceCount(static_cast<int64_t>(local.size())); ++piece) {
      call_.Send(next_, Phase::kRingReduce, 0, piece, Piece(local, piece, kPieceBytes));
    }
  }

  Status Fold(int step) {
    const bool last = step == call_.size() - 2;
    const int64_t narrow_piece = kPieceBytes / SizeOf(partial_type_) * SizeOf(dtype_);
    Buffer& buffer = BufferOf(step);
    const auto local = Local(Arriving(step));
    Bytes widened;
    for (size_t i = 0; i < buffer.arriving.size(); ++i) {
      const auto piece = static_cast<int64_t>(i);
      HEDDLE_RETURN_IF_ERROR(call_.Wait(buffer.arriving[i]));
      const auto partial = Piece(std::span(buffer.bytes), piece, kPieceBytes);
      const auto own = Piece(local, piece, narrow_piece);
      if (partial_type_ == dtype_) {
        FoldInto(partial, own, dtype_, op_);
      } else {
        widened.resize(partial.size());
        Convert(own, dtype_, widened, partial_type_);
        FoldInto(partial, widened, partial_type_, op_);
      }
      if (last) {
        Convert(partial, partial_type_, Piece(output_, piece, narrow_piece), dtype_);
      } else {
        buffer.leaving.push_back(call_.Send(next_, Phase::kRingReduce, step + 1, piece, partial));
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
  Bytes own_;
  std::array<Buffer, 3> buffers_;
};

}  // namespace

Status RingReduceScatter(Collective& call,
                         std::span<const std::byte> input,
                         std::span<std::byte> output,
                         const Segments& segments,
                         DType dtype,
                         ReduceOp op) {
  RingReduction reduction(call, input, output, segments, dtype, op);
  const Status status = reduction.Run();
  if (!status.ok()) {
    call.CancelAll();  // Before the buffers of the reduction go.
  }
  return status;
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
