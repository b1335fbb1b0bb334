/// \file
/// One HTTP exchange over libcurl, signed for S3 (AWS Signature Version 4), with bounds on time and
/// on what is taken from the other side. No retries here (client.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "checkpoint/storage/s3/settings.h"

namespace heddle::s3 {

/// Bytes to be sent: text, or a range of an open file, which is read as it is sent.
struct Payload {
  std::string_view text = {};
  int fd = -1;  ///< Not negative: the bytes lie in this file.
  int64_t offset = 0;
  int64_t bytes = 0;  ///< Of the file's range.

  int64_t size() const { return fd < 0 ? static_cast<int64_t>(text.size()) : bytes; }
};

struct HttpRequest {
  enum class Method : uint8_t { kGet, kHead, kPut, kPost, kDelete };
  Method method = Method::kGet;
  std::string url = {};  ///< Encoded; its query sorted, each parameter with a '='.
  std::vector<std::pair<std::string, std::string>> headers = {};
  Payload payload = {};
  std::string payload_sha256 = {};  ///< Hexadecimal: the signature covers it.
  int64_t most_bytes = 0;           ///< Of the answer's body.
  /// Where the body goes when the status is 206; then it is just as long as this.
  std::span<std::byte> into = {};
  Duration timeout = {};
  std::function<bool()> cancelled = {};  ///< Asked about once a second.
};

struct HttpAnswer {
  int status = 0;
  std::string body;     ///< Unless it went to `into`.
  int64_t length = -1;  ///< Content-Length, of a HEAD too; -1: not said.
  std::string etag;
  std::string content_range;
};

/// Thread: any; keeps connections open between exchanges.
class Http {
 public:
  explicit Http(Settings settings);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// An answer, whatever its status. Errors: kUnavailable       no connection, it broke, or less
  /// than `into` came
  ///         kDeadlineExceeded  it took longer than `timeout`, or nothing moved for a third of it
  ///         kUnauthenticated   the other side's certificate is not trusted
  ///         kDataLoss          the body is longer than it may be
  ///         kCancelled
  Result<HttpAnswer> Exchange(const HttpRequest& request) const;

 private:
  class Handle;
  std::unique_ptr<Handle> Take() const HEDDLE_EXCLUDES(mutex_);
  void Return(std::unique_ptr<Handle> handle) const HEDDLE_EXCLUDES(mutex_);

  const Settings settings_;
  const std::string user_;  ///< "ACCESS:SECRET", for libcurl's signature.
  const std::string signature_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<Handle>> idle_ HEDDLE_GUARDED_BY(mutex_);
};

/// SHA-256 of a payload, hexadecimal. Errors: those of reading the file.
Result<std::string> Sha256(const Payload& payload);

}  // namespace heddle::s3
