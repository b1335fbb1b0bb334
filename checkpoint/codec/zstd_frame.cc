#include "checkpoint/codec/zstd_frame.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::checkpoint {

namespace {

constexpr uint32_t kMagic = 0xFD2FB528;
// The frame header's descriptor: the size of the content size's field, and flags.
constexpr uint8_t kContentSize8 = 0xC0;
constexpr uint8_t kSingleSegment = 0x20;
// A frame with a window in place of a content size.
constexpr size_t kPlainHeaderBytes = 4 + 1 + 1;
// A block's header: the flag of the last one, the type, the size.
constexpr uint32_t kLast = 1;
enum BlockType : uint8_t { kRaw = 0, kRepeated = 1, kCompressed = 2 };

struct Block {
  uint32_t header = 0;
  BlockType type() const { return static_cast<BlockType>(header >> 1 & 3); }
  uint32_t size() const { return header >> 3; }
  size_t stored() const { return type() == kRepeated ? 1 : size(); }
};

/// The block that `bytes` begins with; nothing when it is not whole.
std::optional<Block> FirstBlock(std::span<const std::byte> bytes) {
  if (bytes.size() < kZstdBlockHeaderBytes) {
    return std::nullopt;
  }
  const Block block{.header = static_cast<uint32_t>(bytes[0]) |
                              static_cast<uint32_t>(bytes[1]) << 8 |
                              static_cast<uint32_t>(bytes[2]) << 16};
  if (bytes.size() - kZstdBlockHeaderBytes < block.stored()) {
    return std::nullopt;
  }
  return block;
}

}  // namespace

ZstdFrameBuilder::ZstdFrameBuilder(std::span<std::byte> out, size_t content_bytes) : out_(out) {
  PutNumber(kMagic, 4);
  PutNumber(kContentSize8 | kSingleSegment, 1);
  PutNumber(content_bytes, 8);
}

void ZstdFrameBuilder::Put(std::span<const std::byte> bytes) {
  HEDDLE_CHECK(bytes.size() <= out_.size() - at_, "a zstd frame outgrew its memory");
  std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<ptrdiff_t>(at_));
  at_ += bytes.size();
}

void ZstdFrameBuilder::PutNumber(uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<std::byte>(value >> (8 * i));
    Put({&byte, 1});
  }
}

void ZstdFrameBuilder::PutBlock(uint32_t header, std::span<const std::byte> bytes) {
  last_block_ = at_;
  PutNumber(header & ~kLast, kZstdBlockHeaderBytes);
  Put(bytes);
}

std::byte* ZstdFrameBuilder::AddRawBlocks(size_t content_bytes) {
  const size_t begin = at_ + kZstdBlockHeaderBytes;
  for (size_t at = 0; at < content_bytes; at += kZstdBlockBytes) {
    const size_t bytes = std::min(kZstdBlockBytes, content_bytes - at);
    PutBlock(static_cast<uint32_t>(bytes) << 3, {});
    HEDDLE_CHECK(bytes <= out_.size() - at_, "a zstd frame outgrew its memory");
    at_ += bytes;
  }
  return out_.data() + begin;
}

void ZstdFrameBuilder::AddRaw(std::span<const std::byte> content) {
  std::byte* to = AddRawBlocks(content.size());
  for (size_t at = 0; at < content.size(); at += kZstdBlockBytes) {
    const auto bytes = content.subspan(at, std::min(kZstdBlockBytes, content.size() - at));
    to = std::copy(bytes.begin(), bytes.end(), to) + kZstdBlockHeaderBytes;
  }
}

Status ZstdFrameBuilder::AddBlocksOf(std::span<const std::byte> frame) {
  if (frame.size() < kPlainHeaderBytes || frame[4] != std::byte{0}) {
    return InternalError("zstd wrote another frame than it was asked for");
  }
  return AddBlocks(frame.subspan(kPlainHeaderBytes));
}

Status ZstdFrameBuilder::AddBlocks(std::span<const std::byte> blocks) {
  while (!blocks.empty()) {
    const auto block = FirstBlock(blocks);
    if (!block) {
      return InternalError("a zstd frame ends within a block");
    }
    PutBlock(block->header, blocks.subspan(kZstdBlockHeaderBytes, block->stored()));
    blocks = blocks.subspan(kZstdBlockHeaderBytes + block->stored());
  }
  return Status::Ok();
}

size_t ZstdFrameBuilder::Finish() {
  if (last_block_ == 0) {
    PutBlock(0, {});
  }
  out_[last_block_] |= std::byte{kLast};
  return at_;
}

std::optional<ZstdFrameParts> ZstdFrameParts::Open(std::span<const std::byte> frame) {
  if (frame.size() < kZstdFrameBytes || frame[4] != std::byte{kContentSize8 | kSingleSegment}) {
    return std::nullopt;
  }
  return ZstdFrameParts(frame.subspan(kZstdFrameBytes));
}

std::optional<ZstdPart> ZstdFrameParts::Next(size_t content_bytes) {
  ZstdPart part{.raw = true, .blocks = rest_};
  for (size_t left = content_bytes; left > 0;) {
    const auto block = FirstBlock(rest_);
    const size_t content = std::min(left, kZstdBlockBytes);
    if (!block || ended_ || (block->type() != kCompressed && block->size() != content)) {
      return std::nullopt;
    }
    part.raw = part.raw && block->type() == kRaw;
    ended_ = (block->header & kLast) != 0;
    rest_ = rest_.subspan(kZstdBlockHeaderBytes + block->stored());
    left -= content;
  }
  part.blocks = part.blocks.first(part.blocks.size() - rest_.size());
  return part;
}

}  // namespace heddle::checkpoint
