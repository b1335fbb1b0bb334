/// \file
/// The manifest, the file whose presence makes a checkpoint exist. It is the JSON text of an object
/// whose first three fields are the format's name, its version and a checksum of the whole text
/// (with the checksum's 32 digits taken as zeros), so that a change of any byte is detected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The most bytes of a manifest; a million chunks take about 50 MB.
inline constexpr int64_t kManifestLimit = int64_t{512} << 20;
/// The most bytes of a decoded chunk.
inline constexpr int64_t kChunkLimit = int64_t{256} << 20;

/// The head of a manifest's text, which determines the position of its checksum.
inline constexpr std::string_view kManifestHead = R"({"format":"heddle-checkpoint","version":)";
inline constexpr std::string_view kChecksumField = R"(,"checksum":")";
/// The name of the only rounding by which derived boxes are computed from their source.
inline constexpr const char* kNearestEven = "nearest-even";
/// Hexadecimal digits of a 128-bit hash.
inline constexpr size_t kHexDigits = 32;

/// The text of a manifest's file. Thread: pure.
std::string EncodeManifest(const Manifest& manifest);

/// Parses and validates a manifest. A caller may allocate by the result's numbers and join its
/// names to the folder. Errors: kDataLoss (a violation of checksum, syntax, type, range or
/// coverage, with the field), kUnimplemented (another version).
Result<Manifest> ParseManifest(std::string_view text);

/// Parses and validates a manifest without comparing its checksum; for tests and fuzzing.
Result<Manifest> ParseManifestBody(std::string_view text);

/// A writer's report as JSON text, for the control channel.
std::string EncodePart(const FilePart& part);
/// Parses a text of EncodePart. Errors: kInvalidArgument.
Result<FilePart> DecodePart(std::string_view text);

/// Checks a manifest beyond its syntax: plain and unique file names, boxes that cover every tensor
/// exactly once, chunks that tile their boxes and lie in their files, box digests whose sum is the
/// tensor's, derived boxes whose source exists, and a version that supports them. Errors: kDataLoss
/// naming the tensor or the file.
Status ValidateManifest(const Manifest& manifest);

/// Checks the boxes and chunks of a part in memory, whose elements must all be stored. Errors:
/// kDataLoss.
Status ValidateMemoryShard(const FilePart& part);

/// The digest as 32 lower-case hexadecimal digits.
std::string ToHex(const Digest& digest);

}  // namespace heddle::checkpoint
