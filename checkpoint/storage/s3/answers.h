/// \file
/// Parses the XML responses of a store, strictly and with limits, because they come from a network.
/// Pure. All errors are kDataLoss.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::s3 {

/// The most bytes of a response other than an object; a page of a listing has up to 1000 keys of
/// 1 KiB.
inline constexpr int64_t kMaxAnswerBytes = int64_t{8} << 20;

struct ErrorAnswer {
  std::string code;     ///< S3's error code, "NoSuchKey"; empty: the text is not an error of S3.
  std::string message;  ///< Printable, at most 300 bytes.
};
/// Parses an error response. It never fails; for other texts, such as a proxy's web page, the code
/// is empty.
ErrorAnswer ReadError(std::string_view text);

struct Listing {
  std::vector<std::string> keys;
  std::vector<std::string> folders;  ///< Common prefixes, including the slash.
  std::string next;                  ///< Token of the next page; empty: this is the last.
};
/// Parses a page of ListObjectsV2 in encoding "url"; every key must begin with `prefix`.
Result<Listing> ReadListing(std::string_view text, std::string_view prefix);

struct Upload {
  std::string key;
  std::string id;
};
/// Parses a page of ListMultipartUploads in encoding "url"; every key must begin with `prefix`. One
/// page is enough, because later calls find the remaining uploads.
Result<std::vector<Upload>> ReadUploads(std::string_view text, std::string_view prefix);

/// Parses the upload ID in a response to CreateMultipartUpload: at most 1024 printable characters.
Result<std::string> ReadUploadId(std::string_view text);

/// Whether a response to CompleteMultipartUpload, whose HTTP status is always 200, says that the
/// object exists.
bool IsCompleted(std::string_view text);

/// The request body of CompleteMultipartUpload; `etags` are those of the parts, from number 1.
std::string CompleteBody(const std::vector<std::string>& etags);

/// Whether an ETag can be put into a header unchanged: 1 to 256 printable characters.
bool IsPlainTag(std::string_view tag);

}  // namespace heddle::s3
