#include "engine/runtime/device/cuda/copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>

namespace heddle::runtime::cuda {
namespace {

// Of memory that is not locked in its place. One piece waits for the one before it.
constexpr size_t kPieceBytes = size_t{16} << 20;

}  // namespace

/// A move within the host's memory.
struct Copies::Piece {
  void* to;
  const void* from;
  size_t bytes;

  // Called by a thread of the driver, when the stream gets there. It must not call CUDA.
  static void Run(void* data) {
    const auto* const piece = static_cast<const Piece*>(data);
    std::memcpy(piece->to, piece->from, piece->bytes);
  }
};

Copies::Copies(std::shared_ptr<Queues> queues, std::shared_ptr<PinnedPool> pool)
    : queues_(std::move(queues)),
      pool_(std::move(pool)) {}

void Copies::Move(Queue queue, void* to, const void* from, size_t bytes) {
  queues_->Try(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queues_->stream(queue)),
               "cudaMemcpyAsync");
}

void Copies::MoveOnHost(Queue queue, void* to, const void* from, size_t bytes, Queues::Kept& kept) {
  auto piece = std::make_shared<Piece>(Piece{.to = to, .from = from, .bytes = bytes});
  queues_->Try(cudaLaunchHostFunc(queues_->stream(queue), &Piece::Run, piece.get()),
               "cudaLaunchHostFunc");
  kept.memory.push_back(std::move(piece));
}

std::byte* Copies::Stage(size_t bytes, Queues::Kept& kept) {
  std::shared_ptr<void> memory = pool_->Take(std::min(bytes, kPieceBytes));
  if (memory == nullptr) {
    queues_->Fail(ResourceExhaustedError("no memory of the host can be locked for copies"));
    return nullptr;
  }
  kept.memory.push_back(memory);
  return static_cast<std::byte*>(memory.get());
}

void Copies::Down(void* host, const void* card, size_t bytes, Queues::Kept& kept) {
  queues_->Use();
  if (bytes == 0) {
    return;
  }
  if (IsPinned(host)) {
    Move(Queue::kDown, host, card, bytes);
    return;
  }
  std::byte* const stage = Stage(bytes, kept);
  for (size_t done = 0; stage != nullptr && done < bytes; done += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - done);
    Move(Queue::kDown, stage, static_cast<const std::byte*>(card) + done, piece);
    MoveOnHost(Queue::kDown, static_cast<std::byte*>(host) + done, stage, piece, kept);
  }
}

void Copies::Up(void* card, const void* host, size_t bytes, Queues::Kept& kept) {
  queues_->Use();
  if (bytes == 0) {
    return;
  }
  if (IsPinned(host)) {
    Move(Queue::kUp, card, host, bytes);
    return;
  }
  std::byte* const stage = Stage(bytes, kept);
  for (size_t done = 0; stage != nullptr && done < bytes; done += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - done);
    MoveOnHost(Queue::kUp, stage, static_cast<const std::byte*>(host) + done, piece, kept);
    Move(Queue::kUp, static_cast<std::byte*>(card) + done, stage, piece);
  }
}

}  // namespace heddle::runtime::cuda
