/// \file
/// What a store answers, as XML: read strictly and with bounds, because it comes from a network.
/// Pure. All errors are kDataLoss.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::s3 {

/// No answer but an object's bytes is longer: a page of a listing has 1000 keys of 1 KiB.
inline constexpr int64_t kMostAnswerBytes = int64_t{8} << 20;

struct ErrorAnswer {
  std::string code;     ///< "NoSuchKey"; empty when the text is no error of S3.
  std::string message;  ///< Printable, at most 300 bytes.
};
/// Never fails: a proxy's web page is no error of S3.
ErrorAnswer ReadError(std::string_view text);

struct Listing {
  std::vector<std::string> keys;
  std::vector<std::string> folders;  ///< Common prefixes, with their slash.
  std::string next;                  ///< Token of the page after it; empty: this is the last.
};
/// A page of ListObjectsV2 in encoding "url"; every key begins with `prefix`.
Result<Listing> ReadListing(std::string_view text, std::string_view prefix);

struct Upload {
  std::string key;
  std::string id;
};
/// A page of ListMultipartUploads in encoding "url"; every key begins with `prefix`. One page is
/// enough: what it leaves is there at the next call.
Result<std::vector<Upload>> ReadUploads(std::string_view text, std::string_view prefix);

/// The id in the answer to CreateMultipartUpload: at most 1024 printable characters.
Result<std::string> ReadUploadId(std::string_view text);

/// Whether the answer to CompleteMultipartUpload, whose HTTP status is 200 in any case, says that
/// the object exists.
bool IsCompleted(std::string_view text);

/// The body of CompleteMultipartUpload: `etags` by part, from number 1.
std::string CompleteBody(const std::vector<std::string>& etags);

/// Whether a tag can go into a header as it is: 1 to 256 printable characters.
bool IsPlainTag(std::string_view tag);

}  // namespace heddle::s3
