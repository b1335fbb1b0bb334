/// \file
/// HTTP exchanges over libcurl, signed for S3 (AWS Signature Version 4), with limits on their time
/// and on the size of responses. Retries are done by client.h.
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

/// The bytes of a request: a text, or a range of an open file, which is read while it is sent.
struct Payload {
  std::string_view text = {};
  int fd = -1;  ///< The file with the bytes; negative: `text` has them.
  int64_t offset = 0;
  int64_t bytes = 0;  ///< Size of the file's range.

  int64_t size() const { return fd < 0 ? static_cast<int64_t>(text.size()) : bytes; }
};

struct HttpRequest {
  enum class Method : uint8_t { kGet, kHead, kPut, kPost, kDelete };
  Method method = Method::kGet;
  std::string url = {};  ///< Encoded, with a sorted query and a '=' in each parameter.
  std::vector<std::pair<std::string, std::string>> headers = {};
  Payload payload = {};
  std::string payload_sha256 = {};  ///< Hexadecimal; covered by the signature.
  int64_t most_bytes = 0;           ///< The most bytes of the response's body.
  /// Destination of the body if the status is 206; the body must have exactly this size.
  std::span<std::byte> into = {};
  Duration timeout = {};
  std::function<bool()> cancelled = {};  ///< Called about once a second; true cancels.
};

struct HttpResponse {
  int status = 0;
  std::string body;     ///< Empty if the body went to HttpRequest::into.
  int64_t length = -1;  ///< Content-Length, for HEAD, too; -1: missing.
  std::string etag;
  std::string content_range;
};

/// An HTTP client, which keeps connections open between exchanges. Thread: any.
class Http {
 public:
  explicit Http(Settings settings);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// Sends a request and returns the response, whatever its status.
  /// Errors: kUnavailable       no connection, it broke, or the body is shorter than `into`
  ///         kDeadlineExceeded  `timeout` passed, or no byte was transferred for a third of it
  ///         kUnauthenticated   the server's certificate is not trusted
  ///         kDataLoss          the body exceeds its limit
  ///         kCancelled
  Result<HttpResponse> Exchange(const HttpRequest& request) const;

 private:
  class Handle;
  std::unique_ptr<Handle> Take() const HEDDLE_EXCLUDES(mutex_);
  void Return(std::unique_ptr<Handle> handle) const HEDDLE_EXCLUDES(mutex_);

  const Settings settings_;
  const std::string user_;  ///< Credentials "ACCESS:SECRET", for libcurl's signature.
  const std::string signature_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<Handle>> idle_ HEDDLE_GUARDED_BY(mutex_);
};

/// SHA-256 of a payload, hexadecimal. Errors: those of reading the file.
Result<std::string> Sha256(const Payload& payload);

}  // namespace heddle::s3
