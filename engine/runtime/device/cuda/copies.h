/// \file
/// Copies between the host's memory and the card's, in the order of one stream. The host never
/// waits for them, wherever its memory is: what is not locked in its place goes through memory that
/// is, piece by piece, and a thread of the driver moves the pieces.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/runtime/device/cuda/pinned_pool.h"
#include "engine/runtime/device/cuda/queues.h"

namespace heddle::runtime::cuda {

/// Thread: any.
class Copies {
 public:
  Copies(std::shared_ptr<Queues> queues, std::shared_ptr<PinnedPool> pool);

  /// Queues a copy of `bytes` from the card to the host in Queue::kDown. Both ends live until a mark
  /// behind it has ended, and so does what is added to `kept`.
  void Down(void* host, const void* card, size_t bytes, Queues::Kept& kept);
  /// The same from the host to the card in Queue::kUp.
  void Up(void* card, const void* host, size_t bytes, Queues::Kept& kept);

 private:
  struct Piece;

  void Move(Queue queue, void* to, const void* from, size_t bytes);
  void MoveOnHost(Queue queue, void* to, const void* from, size_t bytes, Queues::Kept& kept);
  std::byte* Stage(size_t bytes, Queues::Kept& kept);

  const std::shared_ptr<Queues> queues_;
  const std::shared_ptr<PinnedPool> pool_;
};

}  // namespace heddle::runtime::cuda
