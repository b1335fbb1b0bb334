#include "checkpoint/codec.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <zstd.h>

#include "base/check.h"

namespace heddle::checkpoint {

namespace {

// zstd's block: literals are entropy coded by blocks of this size.
constexpr size_t kBlockBytes = size_t{128} << 10;

// Planes are cut in slices small enough for the first cache, so that each element is loaded once
// from memory although every plane is its own pass: simple loops that compilers vectorise.
constexpr size_t kSliceElements = 2048;

template <typename Word>
void ShuffleWords(const std::byte* in, size_t count, std::byte* out) {
  Word words[kSliceElements];
  for (size_t begin = 0; begin < count; begin += kSliceElements) {
    const size_t slice = std::min(kSliceElements, count - begin);
    std::memcpy(words, in + begin * sizeof(Word), slice * sizeof(Word));
    for (size_t plane = 0; plane < sizeof(Word); ++plane) {
      std::byte* target = out + plane * count + begin;
      for (size_t i = 0; i < slice; ++i) {
        target[i] = static_cast<std::byte>(static_cast<uint8_t>(words[i] >> (8 * plane)));
      }
    }
  }
}

template <typename Word>
void UnshuffleWords(const std::byte* in, size_t count, std::byte* out) {
  Word words[kSliceElements];
  for (size_t begin = 0; begin < count; begin += kSliceElements) {
    const size_t slice = std::min(kSliceElements, count - begin);
    std::fill(words, words + slice, Word{0});
    for (size_t plane = 0; plane < sizeof(Word); ++plane) {
      const std::byte* source = in + plane * count + begin;
      for (size_t i = 0; i < slice; ++i) {
        const Word byte = static_cast<uint8_t>(source[i]);
        words[i] = static_cast<Word>(words[i] | static_cast<Word>(byte << (8 * plane)));
      }
    }
    std::memcpy(out + begin * sizeof(Word), words, slice * sizeof(Word));
  }
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
      return ShuffleWords<uint16_t>(in.data(), count, out.data());
    case 4:
      return ShuffleWords<uint32_t>(in.data(), count, out.data());
    case 8:
      return ShuffleWords<uint64_t>(in.data(), count, out.data());
    default:
      std::copy(in.begin(), in.end(), out.begin());
  }
}

void Unshuffle(std::span<const std::byte> in, int64_t element_size, std::span<std::byte> out) {
  const size_t count = in.size() / static_cast<size_t>(element_size);
  switch (element_size) {
    case 2:
      return UnshuffleWords<uint16_t>(in.data(), count, out.data());
    case 4:
      return UnshuffleWords<uint32_t>(in.data(), count, out.data());
    case 8:
      return UnshuffleWords<uint64_t>(in.data(), count, out.data());
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
  // Entropy coding with as good as no match search: fast strategy, long minimum match, tiny hash.
  size_t code = 0;
  for (const auto& [parameter, value] : {std::pair{ZSTD_c_compressionLevel, 1},
                                         {ZSTD_c_strategy, static_cast<int>(ZSTD_fast)},
                                         {ZSTD_c_minMatch, 7},
                                         {ZSTD_c_hashLog, 6},
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
