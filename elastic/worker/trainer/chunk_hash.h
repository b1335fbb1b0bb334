/// \file
/// Hashes of the pieces in which state moves between workers. The sender computes them, and the
/// receiver compares them before it uses a piece. A hash covers the piece's tensor, box, generation
/// and step as well as its bytes, so that a piece of another place or step does not match either.
/// The hashes guard against accidents, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/program/state.h"

namespace heddle::elastic {

/// Largest message in bytes; small enough that a worker on a slow link shows progress.
inline constexpr int64_t kPieceBytes = int64_t{16} << 20;

/// The number of pieces in which a transfer of `bytes` moves; at least one.
int64_t PiecesOf(int64_t bytes);

/// The state that a transfer moves a box of. Thread: pure.
struct MovedState {
  int64_t generation = 0;  ///< The generation whose state it is.
  int64_t step = 0;        ///< The step after which it is.

  /// Computes the hash of each piece of `bytes`. Time: O(bytes), about as long as reading them.
  std::vector<uint64_t> Hashes(const program::Transfer& transfer,
                               std::span<const std::byte> bytes) const;
};

/// The first piece whose hash differs, and the number of such pieces.
struct Difference {
  size_t piece = 0;
  uint64_t expected = 0;
  uint64_t found = 0;
  int64_t pieces = 0;
};
/// Compares hashes piece by piece; nullopt if all are equal. Precondition: equal counts.
std::optional<Difference> Compare(std::span<const uint64_t> expected,
                                  std::span<const uint64_t> found);

/// Names a piece in messages: "exp_avg of layers.0.mlp.gate [0:64, 0:16], piece 2 of 3".
std::string NameOf(const std::string& parameter,
                   const program::Transfer& transfer,
                   size_t piece,
                   size_t pieces);

}  // namespace heddle::elastic
