/// \file
/// Builds zstd frames (RFC 8878) from blocks and splits them into blocks. Bytes that do not
/// compress become raw blocks without calling zstd, and are read from them without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"

namespace heddle::checkpoint {

/// Bytes of a block's header.
inline constexpr size_t kZstdBlockHeaderBytes = 3;

/// The most content of a block.
inline constexpr size_t kZstdBlockBytes = size_t{128} << 10;

/// Bytes of a frame before its blocks: magic number and header.
inline constexpr size_t kZstdFrameBytes = 4 + 1 + 8;

/// Builds one frame with content size. The caller adds the whole content in order.
class ZstdFrameBuilder {
 public:
  /// `out` has room for the frame: kZstdFrameBytes and, for each block, kZstdBlockHeaderBytes
  /// beside its bytes.
  ZstdFrameBuilder(std::span<std::byte> out, size_t content_bytes);
  void AddRaw(std::span<const std::byte> content);
  /// Adds raw blocks whose content the caller writes before Finish: byte i goes to the returned
  /// pointer plus i + kZstdBlockHeaderBytes * (i / kZstdBlockBytes). Cost: one header per block.
  std::byte* AddRawBlocks(size_t content_bytes);
  /// Adds blocks made by zstd. Errors: kInternal (the last block is cut off).
  Status AddBlocks(std::span<const std::byte> blocks);
  /// Adds the blocks of a frame of zstd without content size, checksum and dictionary. Errors:
  /// kInternal (another kind of frame).
  Status AddBlocksOf(std::span<const std::byte> frame);
  /// Ends the frame and returns its size in bytes.
  size_t Finish();

 private:
  void Put(std::span<const std::byte> bytes);
  void PutNumber(uint64_t value, size_t bytes);
  void PutBlock(uint32_t header, std::span<const std::byte> bytes);

  std::span<std::byte> out_;
  size_t at_ = 0;
  size_t last_block_ = 0;
};

/// A part of a frame's content that begins and ends at block boundaries. All of its blocks but the
/// last have kZstdBlockBytes of content.
struct ZstdPart {
  /// Whether all blocks are raw. Content byte i is then blocks[i + kZstdBlockHeaderBytes * (1 + i /
  /// kZstdBlockBytes)].
  bool raw = false;
  std::span<const std::byte> blocks;
};

/// Iterates over the parts of a frame.
class ZstdFrameParts {
 public:
  /// Opens a frame; nullopt: its header differs from that of ZstdFrameBuilder.
  static std::optional<ZstdFrameParts> Open(std::span<const std::byte> frame);
  /// The part of the next `content_bytes`; nullopt: no block ends there.
  std::optional<ZstdPart> Next(size_t content_bytes);
  /// Whether the frame ends after the last part.
  bool AtEnd() const { return ended_ && rest_.empty(); }

 private:
  explicit ZstdFrameParts(std::span<const std::byte> rest) : rest_(rest) {}
  std::span<const std::byte> rest_;
  bool ended_ = false;
};

}  // namespace heddle::checkpoint
