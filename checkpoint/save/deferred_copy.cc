#include "checkpoint/save/deferred_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"

namespace heddle::checkpoint {

namespace {

/// Long enough that the lock between two blocks costs nothing, and short enough to wait for.
constexpr size_t kBlock = size_t{1} << 20;
constexpr Duration kPoll = std::chrono::seconds(1);  // Every wait has a bound; loops check again.

const std::byte* End(std::span<const std::byte> memory) {
  return memory.data() + memory.size();
}

/// 0, 1, … count - 1.
std::vector<size_t> Numbers(size_t count) {
  std::vector<size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

}  // namespace

void DeferredCopy::Begin(const std::vector<Piece>& pieces) {
  HEDDLE_CHECK(!active(), "a copy begins while another one is not complete");
  const MutexLock lock(mutex_);
  entries_.clear();
  left_ = 0;
  for (const Piece& piece : pieces) {
    entries_.push_back({.piece = piece});
    left_ += piece.from.size();
  }
  by_address_ = Numbers(pieces.size());
  std::sort(by_address_.begin(), by_address_.end(), [&](size_t a, size_t b) {
    return std::less<>()(pieces[a].from.data(), pieces[b].from.data());
  });
  reach_.clear();
  for (const size_t entry : by_address_) {
    const std::byte* end = End(pieces[entry].from);
    reach_.push_back(reach_.empty() ? end : std::max(reach_.back(), end, std::less<>()));
  }
  cancelled_ = false;
  active_.store(left_ > 0, std::memory_order_release);
}

std::vector<size_t> DeferredCopy::Overlapping(std::span<const std::byte> memory) const {
  const std::less<> before;
  const MutexLock lock(mutex_);
  const Entry* const entries = entries_.data();
  std::vector<size_t> found;
  // The entries that begin before the memory's end, from the last back to where none reaches it.
  auto at = static_cast<size_t>(
      std::partition_point(
          by_address_.begin(), by_address_.end(),
          [&](size_t entry) { return before(entries[entry].piece.from.data(), End(memory)); }) -
      by_address_.begin());
  while (at > 0 && before(memory.data(), reach_[at - 1])) {
    const size_t entry = by_address_[--at];
    if (before(memory.data(), End(entries[entry].piece.from))) {
      found.push_back(entry);
    }
  }
  return found;
}

bool DeferredCopy::Take(size_t entry, Block& block) {
  const MutexLock lock(mutex_);
  Entry& from = entries_[entry];
  const size_t bytes = std::min(kBlock, from.piece.from.size() - from.taken);
  if (cancelled_ || bytes == 0) {
    return false;
  }
  block = {.entry = entry, .at = from.taken, .bytes = bytes, .piece = from.piece};
  from.taken += bytes;
  reading_ += bytes;
  return true;
}

void DeferredCopy::Copy(const Block& block) {
  if (in_block_) {
    in_block_();
  }
  std::memcpy(block.piece.to + block.at, block.piece.from.data() + block.at, block.bytes);
  const MutexLock lock(mutex_);
  entries_[block.entry].copied += block.bytes;
  reading_ -= block.bytes;
  left_ -= block.bytes;
  if (left_ == 0 || (cancelled_ && reading_ == 0)) {
    active_.store(false, std::memory_order_release);
  }
  changed_.NotifyAll();
}

bool DeferredCopy::IsQuiet(const Entry& entry) const {
  return entry.copied == entry.taken && (cancelled_ || entry.taken == entry.piece.from.size());
}

void DeferredCopy::CopyAll(const std::vector<size_t>& entries) {
  Block block;
  for (const size_t entry : entries) {
    while (Take(entry, block)) {
      Copy(block);
    }
  }
  const MutexLock lock(mutex_);
  for (const size_t entry : entries) {
    while (!IsQuiet(entries_[entry])) {
      changed_.WaitUntil(mutex_, After(kPoll));
    }
  }
}

void DeferredCopy::Finish() {
  size_t count = 0;
  if (active()) {
    const MutexLock lock(mutex_);
    count = entries_.size();
  }
  CopyAll(Numbers(count));
}

void DeferredCopy::Secure(std::span<const std::byte> memory) {
  if (active() && !memory.empty()) {
    CopyAll(Overlapping(memory));
  }
}

void DeferredCopy::Cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  while (reading_ > 0) {
    changed_.WaitUntil(mutex_, After(kPoll));
  }
  active_.store(false, std::memory_order_release);
}

}  // namespace heddle::checkpoint
