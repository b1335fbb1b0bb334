/// \file
/// The manifest: the one file whose presence makes a checkpoint exist. JSON text of one object
/// whose first three fields are the format's name, its version and a checksum of all of the text
/// (its own 32 digits counted as zeros), so that no byte of the file can change unseen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// No manifest is longer; a million chunks take about 50 MB.
inline constexpr int64_t kManifestLimit = int64_t{512} << 20;
/// No chunk is larger when decoded.
inline constexpr int64_t kChunkLimit = int64_t{256} << 20;

/// The head of a manifest's text: what its checksum's place follows from.
inline constexpr std::string_view kManifestHead = R"({"format":"heddle-checkpoint","version":)";
inline constexpr std::string_view kChecksumField = R"(,"checksum":")";
/// The one rounding by which derived boxes follow from their source.
inline constexpr const char* kNearestEven = "nearest-even";
/// Hexadecimal digits of a 128-bit hash.
inline constexpr size_t kHexDigits = 32;

/// The file's text. Thread: pure.
std::string EncodeManifest(const Manifest& manifest);

/// Reads and validates a manifest: whoever holds the result may allocate by its numbers and join
/// its names to the folder. Errors: kDataLoss for a checksum, syntax, type, range or coverage
/// violation, with the field; kUnimplemented for another version.
Result<Manifest> ParseManifest(std::string_view text);

/// The same without the checksum: for tests and fuzzing of what the checksum would hide.
Result<Manifest> ParseManifestBody(std::string_view text);

/// A writer's report as JSON text, for the control channel.
std::string EncodePart(const FilePart& part);
/// Errors: kInvalidArgument.
Result<FilePart> DecodePart(std::string_view text);

/// Everything that must hold of a manifest beyond its syntax: plain and unique file names, boxes
/// that cover every tensor exactly once, chunks that tile their boxes and lie in their files, box
/// digests that add up, derived boxes whose source is there, a version that knows them. Errors:
/// kDataLoss naming the tensor or the file.
Status ValidateManifest(const Manifest& manifest);

/// The same of a part in memory: its boxes, whose elements are all stored. Errors: kDataLoss.
Status ValidateMemoryPart(const FilePart& part);

/// 32 lower-case hexadecimal digits.
std::string ToHex(const Digest& digest);

}  // namespace heddle::checkpoint
