/// \file
/// The operations of S3 that checkpoints need, on one bucket: each is tried again while the store
/// says "later" or cannot be reached, within the settings' bounds. Every error is one line with the
/// operation, the URL, the HTTP status, the store's own words, and what to do.
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

/// When a write counts: always; only when nothing is there; only when what is there has this tag.
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

/// Thread: any. Errors of every operation, beside its own:
///   kUnavailable, kDeadlineExceeded  the store cannot be reached, or says "later", for too long
///   kUnauthenticated   it refuses the credentials, or they may not do this
///   kInvalidArgument   no such bucket, another region, another request than it understands
///   kDataLoss          its answer is not what S3 answers
///   kCancelled         `cancelled`, where it is given, has become true
class Client {
 public:
  using Cancelled = std::function<bool()>;

  Client(Settings settings, std::string bucket);

  const Settings& settings() const { return settings_; }
  /// "s3://BUCKET/KEY".
  std::string UrlOf(std::string_view key) const;

  /// Errors: kNotFound.
  Result<ObjectFacts> Head(const std::string& key) const;
  /// Fills `out` from `offset` of the object, as long as it has this tag. Errors: kNotFound;
  /// kDataLoss when the object is another by now or ends before.
  Status Read(const std::string& key,
              const std::string& etag,
              int64_t offset,
              std::span<std::byte> out,
              const Cancelled& cancelled = {}) const;
  /// The whole object. Errors: kNotFound, kDataLoss when it is longer than `most_bytes`.
  Result<Object> Get(const std::string& key, int64_t most_bytes) const;
  /// Writes an object; its tag. Errors: kFailedPrecondition when the condition does not hold, which
  /// a second attempt also gets when the first one's answer was lost.
  Result<std::string> Put(const std::string& key,
                          const Payload& payload,
                          const Condition& condition = {},
                          const Cancelled& cancelled = {}) const;
  /// Nothing there is fine.
  Status Delete(const std::string& key) const;
  /// All keys below `prefix`, sorted; with `folders`, those up to the next slash once, and no keys
  /// below them. Errors: kResourceExhausted above a million.
  Result<Listing> List(const std::string& prefix, bool folders) const;

  Result<std::string> BeginUpload(const std::string& key) const;
  /// The part's tag.
  Result<std::string> UploadPart(const std::string& key,
                                 const std::string& id,
                                 int64_t number,
                                 const Payload& payload,
                                 const Cancelled& cancelled) const;
  /// The object exists then. Errors: kNotFound when there is no such upload, which a second attempt
  /// also gets when the first one's answer was lost.
  Status CompleteUpload(const std::string& key,
                        const std::string& id,
                        const std::vector<std::string>& etags) const;
  /// Nothing there is fine.
  Status AbortUpload(const std::string& key, const std::string& id) const;
  /// Uploads that were begun and not ended, of keys that begin with `prefix`: a thousand at most.
  Result<std::vector<Upload>> Uploads(const std::string& prefix) const;

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;

  /// Sends `request` to `key` until it succeeds (2xx, and `accepts` the body, where given) or is
  /// given up.
  Result<HttpAnswer> Send(HttpRequest request,
                          const std::string& key,
                          const Query& query = {},
                          const std::function<bool(const std::string&)>& accepts = {}) const;
  Status Refusal(const HttpAnswer& answer, bool& is_transient) const;

  const Settings settings_;
  const std::string bucket_;
  const std::string base_url_;
  const Http http_;
};

}  // namespace heddle::s3
