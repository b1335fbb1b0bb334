/// \file
/// zstd frames (RFC 8878) put together from blocks, and taken apart: bytes that do not compress
/// become raw blocks without asking zstd, and come back from them without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"

namespace heddle::checkpoint {

/// What goes before each block.
inline constexpr size_t kZstdBlockHeaderBytes = 3;

/// The most content of a block.
inline constexpr size_t kZstdBlockBytes = size_t{128} << 10;

/// Bytes of a frame beside the blocks: magic number and header.
inline constexpr size_t kZstdFrameBytes = 4 + 1 + 8;

/// One frame with content size. The caller gives the whole content in order.
class ZstdFrameBuilder {
 public:
  /// `out` has room for all that is added: kZstdFrameBytes, and 3 bytes a block beside its bytes.
  ZstdFrameBuilder(std::span<std::byte> out, size_t content_bytes);
  void AddRaw(std::span<const std::byte> content);
  /// The same of content that the caller writes himself before Finish: byte i goes to the returned
  /// pointer plus i + kZstdBlockHeaderBytes * (i / kZstdBlockBytes). Cost: one header a block.
  std::byte* AddRawBlocks(size_t content_bytes);
  /// Whole blocks that zstd made, without any that go before them. Errors: kInternal when they are
  /// not whole.
  Status AddBlocks(std::span<const std::byte> blocks);
  /// Those of another frame, one without content size, checksum and dictionary. Errors: kInternal
  /// for other frames.
  Status AddBlocksOf(std::span<const std::byte> frame);
  /// Returns the frame's bytes.
  size_t Finish();

 private:
  void Put(std::span<const std::byte> bytes);
  void PutNumber(uint64_t value, size_t bytes);
  void PutBlock(uint32_t header, std::span<const std::byte> bytes);

  std::span<std::byte> out_;
  size_t at_ = 0;
  size_t last_block_ = 0;
};

/// A part of a frame's content that has blocks of its own, all but its last one of kZstdBlockBytes.
struct ZstdPart {
  /// All of them are raw: content byte i is blocks[i + kZstdBlockHeaderBytes * (1 + i /
  /// kZstdBlockBytes)].
  bool raw = false;
  std::span<const std::byte> blocks;
};

/// Passes over a frame made of such parts.
class ZstdFrameParts {
 public:
  /// Nothing when the header is of another form than the builder's.
  static std::optional<ZstdFrameParts> Open(std::span<const std::byte> frame);
  /// The next `content_bytes`; nothing when the blocks cannot be so many bytes.
  std::optional<ZstdPart> Next(size_t content_bytes);
  /// Whether the frame ends with the part before.
  bool AtEnd() const { return ended_ && rest_.empty(); }

 private:
  explicit ZstdFrameParts(std::span<const std::byte> rest) : rest_(rest) {}
  std::span<const std::byte> rest_;
  bool ended_ = false;
};

}  // namespace heddle::checkpoint
