#include "comm/transport/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::comm {

namespace {

/// The process's choice, which depends on where its cores and those of its peers lie.
StoreChoice& Choice() {
  static StoreChoice choice;
  return choice;
}

void CopyWith(bool streaming, std::byte* to, const std::byte* from, size_t bytes) {
  if (streaming) {
    CopyStreaming(to, from, bytes);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

// Between what ordinary stores reach within a cache and between two.
void StoreChoice::Record(size_t bytes, Duration took) {
  constexpr int64_t kSlowBytesPerNanosecond = 6;
  const bool slow = static_cast<int64_t>(bytes) < took.count() * kSlowBytesPerNanosecond;
  const int votes = votes_.load(std::memory_order_relaxed) + (slow ? 1 : -2);
  votes_.store(std::clamp(votes, 0, kMaxVotes), std::memory_order_relaxed);
}

#if defined(__x86_64__)
void CopyStreaming(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kPage = 4096;
  if (bytes < kPage) {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
    return;
  }
  // Whole lines leave the core's write buffers in one go.
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // These stores are ordered with no others.
}
#else
void CopyStreaming(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}
#endif

void CopyToStage(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kMeasurable = 16384;  // Less says more about the clock than about the stores.
  if (bytes < kMeasurable) {
    CopyWith(Choice().streams(), to, from, bytes);
  } else if (Choice().Streams()) {
    CopyStreaming(to, from, bytes);
  } else {
    const Time began = Now();
    std::memcpy(to, from, bytes);
    Choice().Record(bytes, Now() - began);
  }
}

void CopyResult(std::byte* to, const std::byte* from, size_t bytes, size_t whole) {
  constexpr size_t kCachedBytes = size_t{1} << 20;
  CopyWith(whole > kCachedBytes && Choice().streams(), to, from, bytes);
}

}  // namespace heddle::comm
