#include "checkpoint/codec/shuffle.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::checkpoint {

namespace {

// Sixteen bytes of a vector register; compilers have instructions for the shuffles below
// everywhere.
using Vector __attribute__((vector_size(16))) = uint8_t;
constexpr size_t kLanes = sizeof(Vector);

/// The planes of kLanes elements of N bytes: each step parts bytes of even and of odd number.
template <size_t N>
[[gnu::always_inline]] inline std::array<Vector, N> Planes(const std::array<Vector, N>& elements) {
  if constexpr (N == 1) {
    return elements;
  } else {
    std::array<Vector, N / 2> even;
    std::array<Vector, N / 2> odd;
    for (size_t i = 0; i < N / 2; ++i) {
      const Vector a = elements[2 * i];
      const Vector b = elements[2 * i + 1];
      even[i] =
          __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      odd[i] =
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    }
    even = Planes<N / 2>(even);
    odd = Planes<N / 2>(odd);
    std::array<Vector, N> planes;
    for (size_t i = 0; i < N / 2; ++i) {
      planes[2 * i] = even[i];
      planes[2 * i + 1] = odd[i];
    }
    return planes;
  }
}

/// The inverse of Planes.
template <size_t N>
[[gnu::always_inline]] inline std::array<Vector, N> Elements(const std::array<Vector, N>& planes) {
  if constexpr (N == 1) {
    return planes;
  } else {
    std::array<Vector, N / 2> even;
    std::array<Vector, N / 2> odd;
    for (size_t i = 0; i < N / 2; ++i) {
      even[i] = planes[2 * i];
      odd[i] = planes[2 * i + 1];
    }
    even = Elements<N / 2>(even);
    odd = Elements<N / 2>(odd);
    std::array<Vector, N> elements;
    for (size_t i = 0; i < N / 2; ++i) {
      const Vector a = even[i];
      const Vector b = odd[i];
      elements[2 * i] =
          __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      elements[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                    29, 14, 30, 15, 31);
    }
    return elements;
  }
}

template <size_t N>
void ShuffleElements(const std::byte* in, size_t count, const PlanesOut& planes) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::array<Vector, N> elements;
    std::memcpy(elements.data(), in + i * N, sizeof elements);
    const auto parted = Planes<N>(elements);
    for (size_t plane = 0; plane < N; ++plane) {
      std::memcpy(planes[plane] + i, &parted[plane], kLanes);
    }
  }
  for (; i < count; ++i) {
    for (size_t plane = 0; plane < N; ++plane) {
      planes[plane][i] = in[i * N + plane];
    }
  }
}

template <size_t N>
void UnshuffleElements(const PlanesIn& planes, size_t count, std::byte* out) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::array<Vector, N> parted;
    for (size_t plane = 0; plane < N; ++plane) {
      std::memcpy(&parted[plane], planes[plane] + i, kLanes);
    }
    const auto elements = Elements<N>(parted);
    std::memcpy(out + i * N, elements.data(), sizeof elements);
  }
  for (; i < count; ++i) {
    for (size_t plane = 0; plane < N; ++plane) {
      out[i * N + plane] = planes[plane][i];
    }
  }
}

/// The planes of `bytes`, side by side.
template <typename Pointers, typename Byte>
Pointers SideBySide(std::span<Byte> bytes, int64_t element_size) {
  Pointers planes{};
  const size_t plane = bytes.size() / static_cast<size_t>(element_size);
  for (size_t i = 0; i < static_cast<size_t>(element_size); ++i) {
    planes[i] = bytes.data() + i * plane;
  }
  return planes;
}

}  // namespace

void Shuffle(const std::byte* in, size_t count, int64_t element_size, const PlanesOut& planes) {
  switch (element_size) {
    case 2:
      return ShuffleElements<2>(in, count, planes);
    case 4:
      return ShuffleElements<4>(in, count, planes);
    case 8:
      return ShuffleElements<8>(in, count, planes);
    default:
      std::copy_n(in, count, planes[0]);
  }
}

void Unshuffle(const PlanesIn& planes, size_t count, int64_t element_size, std::byte* out) {
  switch (element_size) {
    case 2:
      return UnshuffleElements<2>(planes, count, out);
    case 4:
      return UnshuffleElements<4>(planes, count, out);
    case 8:
      return UnshuffleElements<8>(planes, count, out);
    default:
      std::copy_n(planes[0], count, out);
  }
}

void Shuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out) {
  Shuffle(in.data(), in.size() / static_cast<size_t>(element_size), element_size,
          SideBySide<PlanesOut>(out, element_size));
}

void Unshuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out) {
  Unshuffle(SideBySide<PlanesIn>(in, element_size), in.size() / static_cast<size_t>(element_size),
            element_size, out.data());
}

}  // namespace heddle::checkpoint
