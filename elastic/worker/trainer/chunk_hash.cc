#include "elastic/worker/trainer/chunk_hash.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/hash.h"

namespace heddle::elastic {

int64_t PiecesOf(int64_t bytes) {
  return std::max<int64_t>(1, (bytes + kPieceBytes - 1) / kPieceBytes);
}

std::vector<uint64_t> MovedState::Hashes(const program::Transfer& transfer,
                                         std::span<const std::byte> bytes) const {
  ByteWriter what;
  what.Put(generation);
  what.Put(step);
  what.Put(int64_t{transfer.parameter});
  what.Put(transfer.role);
  for (const auto* numbers : {&transfer.box.offset, &transfer.box.extent}) {
    what.Put(static_cast<int64_t>(numbers->size()));
    for (const int64_t number : *numbers) {
      what.Put(number);
    }
  }
  const uint64_t seed = Hash64(what.bytes());
  const auto most = static_cast<size_t>(kPieceBytes);
  std::vector<uint64_t> hashes(static_cast<size_t>(PiecesOf(std::ssize(bytes))));
  for (size_t piece = 0; piece < hashes.size(); ++piece) {
    const size_t at = piece * most;
    hashes[piece] = Hash64(bytes.subspan(at, std::min(most, bytes.size() - at)), seed + piece);
  }
  return hashes;
}

std::optional<Difference> Compare(std::span<const uint64_t> expected,
                                  std::span<const uint64_t> found) {
  std::optional<Difference> difference;
  for (size_t piece = 0; piece < expected.size(); ++piece) {
    if (expected[piece] != found[piece]) {
      difference = difference.value_or(
          Difference{.piece = piece, .expected = expected[piece], .found = found[piece]});
      ++difference->pieces;
    }
  }
  return difference;
}

std::string NameOf(const std::string& parameter,
                   const program::Transfer& transfer,
                   size_t piece,
                   size_t pieces) {
  return fmt::format("{} of {} {}, piece {} of {}", StateRoleName(transfer.role), parameter,
                     ToString(transfer.box), piece + 1, pieces);
}

}  // namespace heddle::elastic
