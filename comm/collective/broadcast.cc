// Broadcast: a binomial tree for small buffers (few hops), a pipelined chain for large ones (every
// member sends each byte once).
#include <algorithm>

#include "comm/collective/collective.h"

namespace heddle::comm {

namespace {

constexpr int64_t kTreeBytes = int64_t{64} << 10;

// Relative to the root, member r receives from r without its lowest set bit and serves r + 2^k for
// the k below that bit (MPICH's binomial tree).
Status Binomial(Collective& call, std::span<std::byte> buffer, int root) {
  const int size = call.size();
  const int relative = (call.position() - root + size) % size;
  int bit = 1;
  while (bit < size && (relative & bit) == 0) {
    bit <<= 1;
  }
  if (relative != 0) {
    const int from = (relative - bit + root) % size;
    HEDDLE_RETURN_IF_ERROR(call.Wait(call.Recv(from, Phase::kBroadcast, 0, 0, buffer)));
  }
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (relative + bit < size) {
      call.Send((relative + bit + root) % size, Phase::kBroadcast, 0, 0, buffer);
    }
  }
  return call.WaitAll();
}

Status Chain(Collective& call, std::span<std::byte> buffer, int root) {
  const int size = call.size();
  const int relative = (call.position() - root + size) % size;
  const auto bytes = static_cast<int64_t>(buffer.size());
  const int64_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  const auto piece = [&](int64_t i) {
    return Slice(buffer, i * kPieceBytes, std::min(kPieceBytes, bytes - i * kPieceBytes));
  };
  std::vector<Collective::Pending> arriving;
  if (relative != 0) {
    for (int64_t i = 0; i < pieces; ++i) {
      arriving.push_back(
          call.Recv((call.position() - 1 + size) % size, Phase::kBroadcast, 1, i, piece(i)));
    }
  }
  for (int64_t i = 0; i < pieces; ++i) {
    if (relative != 0) {
      HEDDLE_RETURN_IF_ERROR(call.Wait(arriving[static_cast<size_t>(i)]));
    }
    if (relative + 1 < size) {
      call.Send((call.position() + 1) % size, Phase::kBroadcast, 1, i, piece(i));
    }
  }
  return call.WaitAll();
}

}  // namespace

Status BroadcastFrom(Collective& call, std::span<std::byte> buffer, int root) {
  return static_cast<int64_t>(buffer.size()) <= kTreeBytes || call.size() == 2
             ? Binomial(call, buffer, root)
             : Chain(call, buffer, root);
}

}  // namespace heddle::comm
