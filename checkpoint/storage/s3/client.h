/// \file
/// The operations of S3 that checkpoints need, on one bucket. Each is retried after transient
/// errors and while the store cannot be reached, within the settings' limits. Every error is one
/// line with the operation, the URL, the HTTP status, the store's own message, and the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/storage/s3/answers.h"
#include "checkpoint/storage/s3/http.h"
#include "checkpoint/storage/s3/settings.h"

namespace heddle::s3 {

/// The condition of a write: none, only if the object does not exist (`absent`), or only if its
/// ETag is `etag`.
struct Condition {
  bool absent = false;
  std::string etag = {};
};

struct ObjectFacts {
  int64_t bytes = 0;
  std::string etag;
};

struct Object {
  std::string content;
  std::string etag;
};

/// A client of one bucket. Thread: any. Errors of every operation, beside its own:
///   kUnavailable, kDeadlineExceeded  unreachable, or transient errors for too long
///   kUnauthenticated   the store refuses the credentials or their permissions
///   kInvalidArgument   no such bucket, another region, a request that the store does not support
///   kDataLoss          a response that is not one of S3
///   kCancelled         `cancelled`, if given, has returned true
class Client {
 public:
  using Cancelled = std::function<bool()>;

  Client(Settings settings, std::string bucket);

  const Settings& settings() const { return settings_; }
  /// The URL of an object: "s3://BUCKET/KEY".
  std::string UrlOf(std::string_view key) const;

  /// Size and ETag of an object. Errors: kNotFound.
  Result<ObjectFacts> Head(const std::string& key) const;
  /// Reads bytes from `offset` on of the object with ETag `etag` into `out`. Errors: kNotFound;
  /// kDataLoss (the object was replaced or ends before).
  Status Read(const std::string& key,
              const std::string& etag,
              int64_t offset,
              std::span<std::byte> out,
              const Cancelled& cancelled = {}) const;
  /// Reads a whole object. Errors: kNotFound, kDataLoss (longer than `most_bytes`).
  Result<Object> Get(const std::string& key, int64_t most_bytes) const;
  /// Writes an object and returns its ETag. Errors: kFailedPrecondition (the condition does not
  /// hold; also possible if a first attempt succeeded and its response was lost).
  Result<std::string> Put(const std::string& key,
                          const Payload& payload,
                          const Condition& condition = {},
                          const Cancelled& cancelled = {}) const;
  /// Deletes an object; it is no error if there is none.
  Status Delete(const std::string& key) const;
  /// Lists all keys below `prefix`, sorted. With `folders`, keys with a further slash are replaced
  /// by their common prefixes up to it. Errors: kResourceExhausted (more than a million keys).
  Result<Listing> List(const std::string& prefix, bool folders) const;

  /// Begins a multipart upload and returns its ID.
  Result<std::string> BeginUpload(const std::string& key) const;
  /// Uploads a part and returns its ETag.
  Result<std::string> UploadPart(const std::string& key,
                                 const std::string& id,
                                 int64_t number,
                                 const Payload& payload,
                                 const Cancelled& cancelled) const;
  /// Completes an upload, which creates the object. Errors: kNotFound (no such upload; also
  /// possible if a first attempt succeeded and its response was lost).
  Status CompleteUpload(const std::string& key,
                        const std::string& id,
                        const std::vector<std::string>& etags) const;
  /// Aborts an upload; it is no error if there is none.
  Status AbortUpload(const std::string& key, const std::string& id) const;
  /// Up to a thousand unfinished uploads of keys that begin with `prefix`.
  Result<std::vector<Upload>> Uploads(const std::string& prefix) const;

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;

  /// Sends `request` to `key`, with retries, until it succeeds (status 2xx, and `accepts`, if
  /// given, returns true for the body) or fails.
  Result<HttpResponse> Send(HttpRequest request,
                            const std::string& key,
                            const Query& query = {},
                            const std::function<bool(const std::string&)>& accepts = {}) const;
  Status Refusal(const HttpResponse& response, bool& is_transient) const;

  const Settings settings_;
  const std::string bucket_;
  const std::string base_url_;
  const Http http_;
};

}  // namespace heddle::s3
