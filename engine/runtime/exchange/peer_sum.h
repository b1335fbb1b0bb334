/// \file
/// What a worker's device copies and adds to make its part of one sum in memory that the members of
/// a group read of each other. The elements of a sum's parts follow each other. Each member adds a
/// slice of them, and each piece of the sum, which is made at once, has a part of every slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/program/program.h"
#include "engine/runtime/device/peer_memory.h"

namespace heddle::runtime {

/// One instruction's part of a sum: this worker's contributions, contiguous tensors on the device,
/// and what it gets; not defined if it keeps none.
struct SumPart {
  const program::Instruction* instruction = nullptr;
  std::vector<at::Tensor> values = {};
  at::Tensor output = {};
};

/// Halves of the memory, and what each contribution has in one, are multiples of this.
inline constexpr size_t kSumAlignment = 256;

/// Memory of a group's members, in two halves, which pieces use in turn.
struct PeerArenas {
  std::vector<std::shared_ptr<std::byte>> memory;  ///< By position, the own among them.
  size_t position = 0;                             ///< The own.
  size_t half = 0;                                 ///< Bytes.
};

/// Returns how many bytes a half needs so that a sum of `elements` is made in one piece.
size_t HalfFor(const program::Instruction& instruction, int64_t elements, DType dtype);

/// Returns the order of a sum's additions; empty if a device cannot make them.
std::vector<uint8_t> AdditionsOf(const program::Instruction& instruction);

/// Keeps the tensors and the arenas that it is about. Thread: any.
class PeerSum {
 public:
  /// `parts`: all of one collective, of `elements` elements in all.
  PeerSum(std::vector<SumPart> parts,
          int64_t elements,
          DType dtype,
          std::shared_ptr<const PeerArenas> arenas);

  int64_t pieces() const { return pieces_; }
  /// The copies of this worker's contributions into its own half `half`, 0 or 1.
  std::vector<PeerMemory::Stretch> Put(int64_t piece, size_t half) const;
  /// The sum of its slice, which is left in its own half.
  PeerMemory::Addition Add(int64_t piece, size_t half) const;
  /// The copies of what it gets into its outputs.
  std::vector<PeerMemory::Stretch> Take(int64_t piece, size_t half) const;

 private:
  /// A contribution: of which member, and which of its own.
  struct Leaf {
    size_t member = 0;
    size_t index = 0;
  };
  /// What a piece has of a slice.
  struct Range {
    int64_t first = 0;  ///< Element of the sum.
    int64_t count = 0;
    int64_t place = 0;  ///< Element of a contribution in a half.
  };

  std::vector<Range> RangesOf(int64_t piece) const;
  std::byte* PlaceOf(Leaf leaf, const Range& range, size_t half) const;
  size_t Bytes(int64_t elements) const { return static_cast<size_t>(elements * SizeOf(dtype_)); }

  const program::Instruction& instruction_;
  const std::vector<SumPart> parts_;
  const DType dtype_;
  const std::shared_ptr<const PeerArenas> arenas_;
  const size_t block_;           ///< Bytes of a contribution in a half.
  std::vector<int64_t> begins_;  ///< Of the slices, and the end of the last.
  int64_t pieces_ = 1;
};

}  // namespace heddle::runtime
