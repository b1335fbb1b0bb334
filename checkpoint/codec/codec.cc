#include "checkpoint/codec/codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <zstd.h>

#include "base/check.h"
#include "checkpoint/codec/shuffle.h"
#include "checkpoint/codec/zstd_frame.h"

namespace heddle::checkpoint {

namespace {

// Matches are not searched where the fast strategy steps over a whole block at once. zstd takes
// such a step for a wish not to code literals either, unless this parameter is 1:
// ZSTD_c_literalCompressionMode, a name that zstd.h gives only to those who link it statically.
// A library that refuses it searches, with a table as small as can be.
constexpr ZSTD_cParameter kCodeLiterals = ZSTD_c_experimentalParam5;

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

/// Whether the bytes of a plane, byte `plane` of every element, are as good as random: in a sample
/// of n bytes the sum of the squared counts of byte values is n + n (n - 1) / 256 on average, and
/// more where coding pays. The margin, fifteen standard deviations, is an entropy that lacks 0.06
/// of 8 bits, half of what zstd wants to save before it keeps a coded block: the upper bits of a
/// trained mantissa lack 0.04, and would be coded for nothing.
bool IsRandom(std::span<const std::byte> raw, size_t element_size, size_t plane) {
  constexpr size_t kPieces = 64;
  constexpr size_t kPieceElements = 64;
  constexpr size_t kSample = kPieces * kPieceElements;
  constexpr size_t kDeviation = 361;
  constexpr int64_t kMax = kSample + kSample * (kSample - 1) / 256 + 15 * kDeviation;
  const size_t elements = raw.size() / element_size;
  if (elements < 4 * kSample) {
    return false;
  }
  std::array<int32_t, 256> counts{};
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const size_t first = piece * (elements - kPieceElements) / (kPieces - 1);
    for (size_t i = first; i < first + kPieceElements; ++i) {
      ++counts[static_cast<size_t>(raw[i * element_size + plane])];
    }
  }
  int64_t squares = 0;
  for (const int64_t count : counts) {
    squares += count * count;
  }
  return squares <= kMax;
}

}  // namespace

int64_t EncodedBound(int64_t raw_bytes) {
  // zstd's bound is for one uninterrupted frame; each plane may add a block.
  return static_cast<int64_t>(ZSTD_compressBound(static_cast<size_t>(raw_bytes))) + 256;
}

struct ChunkEncoder::State {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<std::byte> planes;
  std::vector<std::byte> frame;  ///< The frame of one plane.

  void SetParameters(bool search);
  Status AddCompressed(std::span<const std::byte> plane, ZstdFrameBuilder& builder);
};

ChunkEncoder::ChunkEncoder() : state_(std::make_unique<State>()) {
  HEDDLE_CHECK(state_->context != nullptr, "zstd: no memory for a compression context");
}

ChunkEncoder::~ChunkEncoder() {
  ZSTD_freeCCtx(state_->context);
}

void ChunkEncoder::State::SetParameters(bool search) {
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  search = search || ZSTD_isError(ZSTD_CCtx_setParameter(context, kCodeLiterals, 1)) != 0;
  for (const auto& [parameter, value] :
       {std::pair{ZSTD_c_compressionLevel, 1},
        {ZSTD_c_strategy, static_cast<int>(ZSTD_fast)},
        {ZSTD_c_minMatch, 7},
        {ZSTD_c_hashLog, 6},
        {ZSTD_c_targetLength, search ? 0 : static_cast<int>(kZstdBlockBytes)},
        {ZSTD_c_checksumFlag, 0},
        {ZSTD_c_contentSizeFlag, 0}}) {
    const size_t code = ZSTD_CCtx_setParameter(context, parameter, value);
    HEDDLE_CHECK(ZSTD_isError(code) == 0, "zstd refuses the codec's parameters");
  }
}

Status ChunkEncoder::State::AddCompressed(std::span<const std::byte> plane,
                                          ZstdFrameBuilder& builder) {
  frame.resize(std::max(frame.size(), ZSTD_compressBound(plane.size())));
  const size_t size =
      ZSTD_compress2(context, frame.data(), frame.size(), plane.data(), plane.size());
  if (ZSTD_isError(size) != 0) {
    return InternalError("zstd: {}", ZSTD_getErrorName(size));
  }
  return builder.AddBlocksOf(std::span(frame).first(size));
}

Result<int64_t> ChunkEncoder::Encode(std::span<const std::byte> raw,
                                     int64_t element_size,
                                     std::span<std::byte> out) {
  State& state = *state_;
  const auto planes = static_cast<size_t>(element_size);
  const size_t bytes = raw.size() / planes;
  state.planes.resize(raw.size());
  ZstdFrameBuilder builder(out, raw.size());
  PlanesOut begins{};
  // Random planes that come first, an fp32's, have their place in the frame before others are
  // compressed.
  size_t placed = 0;
  for (; placed < planes && IsRandom(raw, planes, placed); ++placed) {
    begins[placed] = builder.AddRawBlocks(bytes);
  }
  for (size_t i = placed; i < planes; ++i) {
    begins[i] = state.planes.data() + i * bytes;
  }
  for (size_t at = 0; at < bytes; at += kZstdBlockBytes) {
    const size_t count = std::min(kZstdBlockBytes, bytes - at);
    Shuffle(raw.data() + at * planes, count, element_size, begins);
    for (size_t i = 0; i < planes; ++i) {
      begins[i] += count + (i < placed ? kZstdBlockHeaderBytes : 0);
    }
  }
  state.SetParameters(HasZeros(raw));
  for (size_t i = placed; i < planes; ++i) {
    const auto plane = std::span<const std::byte>(state.planes).subspan(i * bytes, bytes);
    if (IsRandom(raw, planes, i)) {
      builder.AddRaw(plane);
    } else {
      HEDDLE_RETURN_IF_ERROR(state.AddCompressed(plane, builder));
    }
  }
  return static_cast<int64_t>(builder.Finish());
}

struct ChunkDecoder::State {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  std::vector<std::byte> planes;
  std::vector<std::byte> frame;  ///< The frame of one plane.

  bool DecodeParts(std::span<const std::byte> stored,
                   int64_t element_size,
                   std::span<std::byte> raw);
  const std::byte* DecodePlane(std::span<const std::byte> blocks, std::span<std::byte> plane);
};

ChunkDecoder::ChunkDecoder() : state_(std::make_unique<State>()) {
  HEDDLE_CHECK(state_->context != nullptr, "zstd: no memory for a decompression context");
}

ChunkDecoder::~ChunkDecoder() {
  ZSTD_freeDCtx(state_->context);
}

/// Decodes the blocks of one plane; null when they are not all of it.
const std::byte* ChunkDecoder::State::DecodePlane(std::span<const std::byte> blocks,
                                                  std::span<std::byte> plane) {
  frame.resize(std::max(frame.size(), blocks.size() + kZstdFrameBytes));
  ZstdFrameBuilder builder(frame, plane.size());
  if (!builder.AddBlocks(blocks).ok()) {
    return nullptr;
  }
  const size_t size =
      ZSTD_decompressDCtx(context, plane.data(), plane.size(), frame.data(), builder.Finish());
  return size == plane.size() ? plane.data() : nullptr;
}

/// Decodes a frame whose planes have blocks of their own; raw ones are read where they lie. False
/// for any other frame, and for a damaged one.
bool ChunkDecoder::State::DecodeParts(std::span<const std::byte> stored,
                                      int64_t element_size,
                                      std::span<std::byte> raw) {
  auto parts = ZstdFrameParts::Open(stored);
  const size_t bytes = raw.size() / static_cast<size_t>(element_size);
  PlanesIn begins{};
  std::array<bool, kMaxElementBytes> in_blocks{};
  for (size_t i = 0; i < static_cast<size_t>(element_size); ++i) {
    const auto part = parts ? parts->Next(bytes) : std::nullopt;
    if (!part) {
      return false;
    }
    in_blocks[i] = part->raw;
    begins[i] = part->raw ? part->blocks.data() + kZstdBlockHeaderBytes
                          : DecodePlane(part->blocks, std::span(planes).subspan(i * bytes, bytes));
    if (begins[i] == nullptr) {
      return false;
    }
  }
  if (!parts->AtEnd()) {
    return false;
  }
  for (size_t at = 0; at < bytes; at += kZstdBlockBytes) {
    const size_t count = std::min(kZstdBlockBytes, bytes - at);
    Unshuffle(begins, count, element_size, raw.data() + at * static_cast<size_t>(element_size));
    for (size_t i = 0; i < static_cast<size_t>(element_size); ++i) {
      begins[i] += count + (in_blocks[i] ? kZstdBlockHeaderBytes : 0);
    }
  }
  return true;
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
  if (state_->DecodeParts(stored, element_size, raw)) {
    return Status::Ok();
  }
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
