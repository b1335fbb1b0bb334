#include "checkpoint/codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <zstd.h>

#include "base/check.h"

namespace heddle::checkpoint {

namespace {

// zstd's block: literals are entropy coded by blocks of this size.
constexpr size_t kBlockBytes = size_t{128} << 10;

// Matches are not searched where the fast strategy steps over a whole block at once. zstd takes
// such a step for a wish not to code literals either, unless this parameter is 1:
// ZSTD_c_literalCompressionMode, a name that zstd.h gives only to those who link it statically.
// A library that refuses it searches, with a table as small as can be.
constexpr ZSTD_cParameter kCodeLiterals = ZSTD_c_experimentalParam5;

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
void ShuffleElements(const std::byte* in, size_t count, std::byte* out) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::array<Vector, N> elements;
    std::memcpy(elements.data(), in + i * N, sizeof elements);
    const auto planes = Planes<N>(elements);
    for (size_t plane = 0; plane < N; ++plane) {
      std::memcpy(out + plane * count + i, &planes[plane], kLanes);
    }
  }
  for (; i < count; ++i) {
    for (size_t plane = 0; plane < N; ++plane) {
      out[plane * count + i] = in[i * N + plane];
    }
  }
}

template <size_t N>
void UnshuffleElements(const std::byte* in, size_t count, std::byte* out) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::array<Vector, N> planes;
    for (size_t plane = 0; plane < N; ++plane) {
      std::memcpy(&planes[plane], in + plane * count + i, kLanes);
    }
    const auto elements = Elements<N>(planes);
    std::memcpy(out + i * N, elements.data(), sizeof elements);
  }
  for (; i < count; ++i) {
    for (size_t plane = 0; plane < N; ++plane) {
      out[i * N + plane] = in[plane * count + i];
    }
  }
}

/// Whether there are stretches of zeros, as in the moments of tokens that never came: those are
/// what a search for matches is good for.
bool HasZeros(std::span<const std::byte> raw) {
  constexpr size_t kStride = 1024;
  constexpr std::array<std::byte, 16> kZeros = {};
  size_t found = 0;
  for (size_t at = 0; at + kZeros.size() <= raw.size(); at += kStride) {
    found += std::memcmp(raw.data() + at, kZeros.data(), kZeros.size()) == 0 ? 1 : 0;
  }
  return found > raw.size() / kStride / 64;
}

}  // namespace

int64_t EncodedBound(int64_t raw_bytes) {
  // ZSTD_compressBound is for one uninterrupted frame; each flushed plane may add one block header.
  return static_cast<int64_t>(ZSTD_compressBound(static_cast<size_t>(raw_bytes))) + 256;
}

void Shuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out) {
  const size_t count = in.size() / static_cast<size_t>(element_size);
  switch (element_size) {
    case 2:
      return ShuffleElements<2>(in.data(), count, out.data());
    case 4:
      return ShuffleElements<4>(in.data(), count, out.data());
    case 8:
      return ShuffleElements<8>(in.data(), count, out.data());
    default:
      std::copy(in.begin(), in.end(), out.begin());
  }
}

void Unshuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out) {
  const size_t count = in.size() / static_cast<size_t>(element_size);
  switch (element_size) {
    case 2:
      return UnshuffleElements<2>(in.data(), count, out.data());
    case 4:
      return UnshuffleElements<4>(in.data(), count, out.data());
    case 8:
      return UnshuffleElements<8>(in.data(), count, out.data());
    default:
      std::copy(in.begin(), in.end(), out.begin());
  }
}

struct ChunkEncoder::State {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<std::byte> planes;
};

ChunkEncoder::ChunkEncoder() : state_(std::make_unique<State>()) {
  HEDDLE_CHECK(state_->context != nullptr, "zstd: no memory for a compression context");
}

ChunkEncoder::~ChunkEncoder() {
  ZSTD_freeCCtx(state_->context);
}

Result<int64_t> ChunkEncoder::Encode(std::span<const std::byte> raw,
                                     int64_t element_size,
                                     std::span<std::byte> out) {
  ZSTD_CCtx* context = state_->context;
  state_->planes.resize(raw.size());
  Shuffle(raw, element_size, state_->planes);
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  const bool search =
      HasZeros(raw) || ZSTD_isError(ZSTD_CCtx_setParameter(context, kCodeLiterals, 1)) != 0;
  size_t code = 0;
  for (const auto& [parameter, value] :
       {std::pair{ZSTD_c_compressionLevel, 1},
        {ZSTD_c_strategy, static_cast<int>(ZSTD_fast)},
        {ZSTD_c_minMatch, 7},
        {ZSTD_c_hashLog, 6},
        {ZSTD_c_targetLength, search ? 0 : static_cast<int>(kBlockBytes)},
        {ZSTD_c_checksumFlag, 1},
        {ZSTD_c_contentSizeFlag, 1}}) {
    code = std::max(
        code, ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value)) ? size_t{1} : 0);
  }
  HEDDLE_CHECK(code == 0, "zstd refuses the codec's parameters");
  code = ZSTD_CCtx_setPledgedSrcSize(context, raw.size());
  HEDDLE_CHECK(ZSTD_isError(code) == 0, "zstd refuses a pledged size");
  const size_t plane = raw.size() / static_cast<size_t>(element_size);
  if (plane % kBlockBytes == 0 || element_size == 1) {
    code = ZSTD_compress2(context, out.data(), out.size(), state_->planes.data(), raw.size());
    if (ZSTD_isError(code) != 0) {
      return InternalError("zstd: {}", ZSTD_getErrorName(code));
    }
    return static_cast<int64_t>(code);
  }
  ZSTD_outBuffer output{out.data(), out.size(), 0};
  for (size_t begin = 0; begin < raw.size(); begin += plane) {
    const bool last = begin + plane >= raw.size();
    ZSTD_inBuffer input{state_->planes.data() + begin, plane, 0};
    do {
      code = ZSTD_compressStream2(context, &output, &input, last ? ZSTD_e_end : ZSTD_e_flush);
      if (ZSTD_isError(code) != 0) {
        return InternalError("zstd: {}", ZSTD_getErrorName(code));
      }
      if (code != 0 && output.pos == output.size) {
        return InternalError("zstd: a chunk of {} bytes grew beyond its bound", raw.size());
      }
    } while (code != 0);
  }
  return static_cast<int64_t>(output.pos);
}

struct ChunkDecoder::State {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  std::vector<std::byte> planes;
};

ChunkDecoder::ChunkDecoder() : state_(std::make_unique<State>()) {
  HEDDLE_CHECK(state_->context != nullptr, "zstd: no memory for a decompression context");
}

ChunkDecoder::~ChunkDecoder() {
  ZSTD_freeDCtx(state_->context);
}

Status ChunkDecoder::Decode(std::span<const std::byte> stored,
                            int64_t element_size,
                            std::span<std::byte> raw) {
  const auto content = ZSTD_getFrameContentSize(stored.data(), stored.size());
  if (content != raw.size()) {
    return DataLossError("not one zstd frame of {} bytes", raw.size());
  }
  const size_t frame = ZSTD_findFrameCompressedSize(stored.data(), stored.size());
  if (ZSTD_isError(frame) != 0 || frame != stored.size() ||
      ZSTD_getDictID_fromFrame(stored.data(), stored.size()) != 0) {
    return DataLossError("not exactly one zstd frame without a dictionary");
  }
  state_->planes.resize(raw.size());
  const size_t size = ZSTD_decompressDCtx(state_->context, state_->planes.data(), raw.size(),
                                          stored.data(), stored.size());
  if (ZSTD_isError(size) != 0) {
    return DataLossError("zstd: {}", ZSTD_getErrorName(size));
  }
  if (size != raw.size()) {
    return DataLossError("zstd: {} bytes instead of {}", size, raw.size());
  }
  Unshuffle(state_->planes, element_size, raw);
  return Status::Ok();
}

}  // namespace heddle::checkpoint
