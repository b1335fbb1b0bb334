// Collectives in one round: each member sends each other member what it needs. It has the fewest
// consecutive messages; for large buffers the rings (ring.cc) use only neighbours' links.
// Reductions run in the order of positions. 16-bit floats are sent unchanged and added in fp32.
#include <algorithm>
#include <cstring>

#include "comm/collective/collective.h"
#include "comm/collective/fold.h"

namespace heddle::comm {

namespace {

/// The most bytes that arrive for one piece of a share, from all members together.
constexpr int64_t kArrivalBytes = int64_t{8} << 20;
constexpr int64_t kLeastPiece = int64_t{16} << 10;
/// Pieces in flight.
constexpr int64_t kWindow = 3;

// Folds what the members sent (`arrived` by position; own: `mine`) and rounds once into `output`,
// which may be `mine`.
void FoldInOrder(std::span<const std::span<std::byte>> arrived,
                 int own,
                 std::span<const std::byte> mine,
                 std::span<std::byte> output,
                 DType dtype,
                 ReduceOp op) {
  std::vector<const std::byte*> inputs;
  inputs.reserve(arrived.size());
  for (const auto& values : arrived) {
    inputs.push_back(values.data());
  }
  inputs[static_cast<size_t>(own)] = mine.data();
  std::byte* const target = output.data();
  FoldAll(inputs, std::span(&target, 1), output.size(), dtype, op);
}

// Receives a share's contributions piece by piece: a few pieces are awaited at once, so that
// reducing one overlaps the transfer of the others and memory stays bounded.
class DirectReduction {
 public:
  DirectReduction(Collective& call,
                  std::span<const std::byte> input,
                  std::span<std::byte> output,
                  const Segments& segments,
                  DType dtype,
                  ReduceOp op)
      : call_(call),
        input_(input),
        output_(output),
        segments_(segments),
        element_(SizeOf(dtype)),
        dtype_(dtype),
        op_(op) {
    // All members cut all shares alike. The largest share's pieces must be numbered, too.
    int64_t largest = 0;
    for (int i = 0; i < call.size(); ++i) {
      largest = std::max(largest, segments.count(i) * element_);
    }
    const int64_t piece =
        std::clamp(kArrivalBytes / std::max(call.size() - 1, 1), kLeastPiece, kPieceBytes);
    piece_ = std::max(piece, largest >> (kMinorBits - 1)) / 16 * 16;
    slots_.resize(static_cast<size_t>(kWindow));
  }

  Status Run() {
    const int own = call_.position();
    const int64_t pieces = Pieces(own);
    for (int64_t piece = 0; piece < std::min(kWindow, pieces); ++piece) {
      Post(piece);
    }
    SendAll();
    for (int64_t piece = 0; piece < pieces; ++piece) {
      PieceBuffers& slot = slots_[static_cast<size_t>(piece % kWindow)];
      for (const auto& pending : slot.arriving) {
        HEDDLE_RETURN_IF_ERROR(call_.Wait(pending));
      }
      const auto [offset, size] = RangeOf(own, piece);
      FoldInOrder(slot.arrived, own, Slice(input_, offset, size),
                  Slice(output_, offset - segments_.begin(own) * element_, size), dtype_, op_);
      if (piece + kWindow < pieces) {
        Post(piece + kWindow);
      }
    }
    return call_.WaitAll();
  }

 private:
  struct PieceBuffers {
    std::vector<std::span<std::byte>> room;     ///< By position; empty for this member.
    std::vector<std::span<std::byte>> arrived;  ///< The part of `room` that the piece fills.
    std::vector<Collective::Pending> arriving;
  };

  int64_t Pieces(int member) const {
    return (segments_.count(member) * element_ + piece_ - 1) / piece_;
  }
  /// Offset and size in bytes of a member's piece.
  std::pair<int64_t, int64_t> RangeOf(int member, int64_t piece) const {
    const int64_t begin = segments_.begin(member) * element_;
    const int64_t bytes = segments_.count(member) * element_;
    return {begin + piece * piece_, std::min(piece_, bytes - piece * piece_)};
  }

  void Post(int64_t piece) {
    PieceBuffers& slot = slots_[static_cast<size_t>(piece % kWindow)];
    slot.arriving.clear();
    slot.room.resize(static_cast<size_t>(call_.size()));
    slot.arrived.resize(slot.room.size());
    const int64_t size =
        RangeOf(call_.position(), piece).second;  // No piece is larger than the first.
    for (int i = 0; i < call_.size(); ++i) {
      if (i != call_.position()) {
        std::span<std::byte>& room = slot.room[static_cast<size_t>(i)];
        room = room.empty() ? call_.Scratch(size) : room;
        slot.arrived[static_cast<size_t>(i)] = Slice(room, 0, size);
        slot.arriving.push_back(
            call_.Recv(i, Phase::kShareReduce, 0, piece, slot.arrived[static_cast<size_t>(i)]));
      }
    }
  }

  void SendAll() {
    int64_t most = 0;
    for (int i = 0; i < call_.size(); ++i) {
      most = std::max(most, i == call_.position() ? 0 : Pieces(i));
    }
    for (int64_t piece = 0; piece < most; ++piece) {
      // Each member starts with another peer, so that no member is flooded.
      for (int step = 1; step < call_.size(); ++step) {
        const int to = (call_.position() + step) % call_.size();
        if (piece < Pieces(to)) {
          const auto [offset, size] = RangeOf(to, piece);
          call_.Send(to, Phase::kShareReduce, 0, piece, Slice(input_, offset, size));
        }
      }
    }
  }

  Collective& call_;
  const std::span<const std::byte> input_;
  const std::span<std::byte> output_;
  const Segments& segments_;
  const int64_t element_;
  const DType dtype_;
  const ReduceOp op_;
  int64_t piece_ = 0;
  std::vector<PieceBuffers> slots_;
};

}  // namespace

Status DirectReduceScatter(Collective& call,
                           std::span<const std::byte> input,
                           std::span<std::byte> output,
                           const Segments& segments,
                           DType dtype,
                           ReduceOp op) {
  return DirectReduction(call, input, output, segments, dtype, op).Run();
}

Status DirectAllReduce(Collective& call, std::span<std::byte> buffer, DType dtype, ReduceOp op) {
  std::vector<std::span<std::byte>> arrived(static_cast<size_t>(call.size()));
  const int own = call.position();
  for (int step = 1; step < call.size(); ++step) {
    const int other = (own + step) % call.size();
    std::span<std::byte>& from = arrived[static_cast<size_t>(other)];
    from = call.Scratch(static_cast<int64_t>(buffer.size()));
    call.Recv(other, Phase::kExchange, 0, 0, from);
    call.Send(other, Phase::kExchange, 0, 0, buffer);
  }
  HEDDLE_RETURN_IF_ERROR(call.WaitAll());
  FoldInOrder(arrived, own, buffer, buffer, dtype, op);
  return Status::Ok();
}

Status DirectAllGather(Collective& call,
                       std::span<std::byte> output,
                       const Segments& segments,
                       int64_t element) {
  const auto segment = [&](int i) {
    return Slice(output, segments.begin(i) * element, segments.count(i) * element);
  };
  const int own = call.position();
  for (int step = 1; step < call.size(); ++step) {
    const int from = (own - step + call.size()) % call.size();
    const int to = (own + step) % call.size();
    if (segments.count(from) > 0) {
      call.Recv(from, Phase::kShareGather, 0, 0, segment(from));
    }
    if (segments.count(own) > 0) {
      call.Send(to, Phase::kShareGather, 0, 0, segment(own));
    }
  }
  return call.WaitAll();
}

}  // namespace heddle::comm
