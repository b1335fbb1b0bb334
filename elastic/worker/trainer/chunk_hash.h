/// \file
/// Hashes of the pieces in which state moves between workers: the sender makes them, the receiver
/// compares before it uses what came. Each says also what the piece is of, so that one of another
/// tensor, place or step fits as little as one whose bytes have changed. They guard against
/// accidents, not against forgers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/program/state.h"

namespace heddle::elastic {

/// A message is of no more bytes, so that a worker on a slow link shows that something arrives.
inline constexpr int64_t kPieceBytes = int64_t{16} << 20;

/// At least one, also of nothing.
int64_t PiecesOf(int64_t bytes);

/// Of which state a transfer moves a box. Thread: pure.
struct MovedState {
  int64_t generation = 0;  ///< That it was, or is, the state of.
  int64_t step = 0;        ///< After which.

  /// One a piece. Time O(bytes): about as long as reading them.
  std::vector<uint64_t> Hashes(const program::Transfer& transfer,
                               std::span<const std::byte> bytes) const;
};

/// The first piece whose hash is another, and how many there are.
struct Difference {
  size_t piece = 0;
  uint64_t expected = 0;
  uint64_t found = 0;
  int64_t pieces = 0;
};
/// None: they agree. Precondition: as many of both.
std::optional<Difference> Compare(std::span<const uint64_t> expected,
                                  std::span<const uint64_t> found);

/// For people: "exp_avg of layers.0.mlp.gate [0:64, 0:16], piece 2 of 3".
std::string NameOf(const std::string& parameter,
                   const program::Transfer& transfer,
                   size_t piece,
                   size_t pieces);

}  // namespace heddle::elastic
