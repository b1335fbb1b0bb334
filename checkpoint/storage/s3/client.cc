#include "checkpoint/storage/s3/client.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/random.h"
#include "checkpoint/storage/s3/retry.h"

namespace heddle::s3 {

namespace {

using Method = HttpRequest::Method;

constexpr size_t kMaxKeys = 1'000'000;
constexpr Duration kPoll = std::chrono::milliseconds(100);

const char* NameOf(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPut:
      return "PUT";
    case Method::kPost:
      return "POST";
    case Method::kDelete:
      return "DELETE";
  }
  return "";
}

double Uniform() {
  // Processes and threads that fail at one time draw apart.
  thread_local Random random(StreamKey(static_cast<uint64_t>(Now().time_since_epoch().count()),
                                       fmt::format("retry {} {}", ::getpid(), ::gettid())));
  return random.Uniform();
}

void Pause(Duration duration, const std::function<bool()>& cancelled) {
  const Deadline deadline = After(duration);
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  while (Now() < deadline && !(cancelled && cancelled())) {
    never.WaitUntil(mutex, std::min(deadline, After(kPoll)));
  }
}

StatusCode CodeOf(int http_status, const std::string& code) {
  if (code == "NoSuchBucket") {
    return StatusCode::kInvalidArgument;
  }
  switch (http_status) {
    case 401:
    case 403:
      return StatusCode::kUnauthenticated;
    case 404:
      return StatusCode::kNotFound;
    case 409:
    case 412:
      return StatusCode::kFailedPrecondition;
    case 416:
      return StatusCode::kDataLoss;
    case 501:
      return StatusCode::kUnimplemented;
    case 507:
      return StatusCode::kResourceExhausted;
    default:
      return http_status >= 500 || http_status == 429 ? StatusCode::kUnavailable
                                                      : StatusCode::kInvalidArgument;
  }
}

const char* Advice(StatusCode status, const std::string& code) {
  if (code == "NoSuchBucket") {
    return ": create the bucket, or correct its name";
  }
  switch (status) {
    case StatusCode::kUnauthenticated:
      return ": check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what the bucket's policy allows";
    case StatusCode::kUnavailable:
      return ": the store is overloaded or down";
    case StatusCode::kInvalidArgument:
      return ": check AWS_REGION and AWS_ENDPOINT_URL";
    default:
      return "";
  }
}

}  // namespace

Client::Client(Settings settings, std::string bucket)
    : settings_(std::move(settings)),
      bucket_(std::move(bucket)),
      base_url_(BaseUrl(settings_, bucket_)),
      http_(settings_) {}

std::string Client::UrlOf(std::string_view key) const {
  return fmt::format("{}{}/{}", kScheme, bucket_, key);
}

Status Client::Refusal(const HttpResponse& response, bool& is_transient) const {
  const ErrorAnswer error = ReadError(response.body);
  is_transient = IsTransient(response.status, error.code);
  const StatusCode code =
      is_transient ? StatusCode::kUnavailable : CodeOf(response.status, error.code);
  return {code, fmt::format("HTTP {}{}{}{}{}{}", response.status, error.code.empty() ? "" : " ",
                            error.code, error.message.empty() ? "" : ": ", error.message,
                            Advice(code, error.code))};
}

Result<HttpResponse> Client::Send(HttpRequest request,
                                  const std::string& key,
                                  const Query& query,
                                  const std::function<bool(const std::string&)>& accepts) const {
  request.url = base_url_ + Encode(key, "/");
  for (const auto& [name, value] : query) {
    request.url += request.url.find('?') == std::string::npos ? '?' : '&';
    request.url += fmt::format("{}={}", name, Encode(value));
  }
  HEDDLE_ASSIGN_OR_RETURN(request.payload_sha256, Sha256(request.payload));
  request.most_bytes = std::max(request.most_bytes, kMaxAnswerBytes);
  const RetryLimits limits{.most_attempts = settings_.most_attempts, .total = settings_.timeout};
  const Time begun = Now();
  for (int failures = 1;; ++failures) {
    request.timeout = settings_.timeout - (Now() - begun);
    auto response = http_.Exchange(request);
    bool is_transient = response.status().code() == StatusCode::kUnavailable ||
                        response.status().code() == StatusCode::kDeadlineExceeded;
    Status status = response.status();
    if (response.ok() && response->status / 100 == 2 && (!accepts || accepts(response->body))) {
      return response;
    }
    if (response.ok()) {
      status = Refusal(*response, is_transient);
    }
    const auto pause = is_transient ? RetryPause(limits, failures, Now() - begun, Uniform())
                                    : std::optional<Duration>();
    if (!pause) {
      return status.WithContext("{} {} at {}{}", NameOf(request.method), UrlOf(key), base_url_,
                                failures == 1 ? "" : fmt::format(", attempt {}", failures));
    }
    Pause(*pause, request.cancelled);
  }
}

Result<ObjectFacts> Client::Head(const std::string& key) const {
  HEDDLE_ASSIGN_OR_RETURN(const HttpResponse response, Send({.method = Method::kHead}, key));
  if (response.length < 0 || !IsPlainTag(response.etag)) {
    return DataLossError("HEAD {}: the answer has no size or no tag", UrlOf(key));
  }
  return ObjectFacts{.bytes = response.length, .etag = response.etag};
}

Status Client::Read(const std::string& key,
                    const std::string& etag,
                    int64_t offset,
                    std::span<std::byte> out,
                    const Cancelled& cancelled) const {
  if (out.empty()) {
    return Status::Ok();
  }
  const int64_t last = offset + static_cast<int64_t>(out.size()) - 1;
  HttpRequest request{.method = Method::kGet, .into = out, .cancelled = cancelled};
  request.headers = {{"Range", fmt::format("bytes={}-{}", offset, last)}, {"If-Match", etag}};
  const auto response = Send(std::move(request), key);
  if (response.status().code() == StatusCode::kFailedPrecondition) {
    return DataLossError("{}: it was replaced while it was read", UrlOf(key));
  }
  HEDDLE_RETURN_IF_ERROR(response.status());
  if (response->status != 206 ||
      !response->content_range.starts_with(fmt::format("bytes {}-{}/", offset, last))) {
    return DataLossError("GET {}: HTTP {} with range '{}', bytes {} to {} were asked for",
                         UrlOf(key), response->status, response->content_range, offset, last);
  }
  return Status::Ok();
}

Result<Object> Client::Get(const std::string& key, int64_t most_bytes) const {
  HEDDLE_ASSIGN_OR_RETURN(HttpResponse response,
                          Send({.method = Method::kGet, .most_bytes = most_bytes}, key));
  if (!IsPlainTag(response.etag)) {
    return DataLossError("GET {}: the answer has no tag", UrlOf(key));
  }
  return Object{.content = std::move(response.body), .etag = std::move(response.etag)};
}

Result<std::string> Client::Put(const std::string& key,
                                const Payload& payload,
                                const Condition& condition,
                                const Cancelled& cancelled) const {
  HttpRequest request{.method = Method::kPut, .payload = payload, .cancelled = cancelled};
  if (condition.absent) {
    request.headers.emplace_back("If-None-Match", "*");
  } else if (!condition.etag.empty()) {
    request.headers.emplace_back("If-Match", condition.etag);
  }
  HEDDLE_ASSIGN_OR_RETURN(const HttpResponse response, Send(std::move(request), key));
  if (!IsPlainTag(response.etag)) {
    return DataLossError("PUT {}: the answer has no tag", UrlOf(key));
  }
  return response.etag;
}

Status Client::Delete(const std::string& key) const {
  const Status status = Send({.method = Method::kDelete}, key).status();
  return status.code() == StatusCode::kNotFound ? Status::Ok() : status;
}

Result<Listing> Client::List(const std::string& prefix, bool folders) const {
  Listing all;
  do {
    Query query;  // Sorted: that is how it is signed.
    if (!all.next.empty()) {
      query.emplace_back("continuation-token", all.next);
    }
    if (folders) {
      query.emplace_back("delimiter", "/");
    }
    query.emplace_back("encoding-type", "url");
    query.emplace_back("list-type", "2");
    query.emplace_back("prefix", prefix);
    const auto response = Send({.method = Method::kGet}, "", query);
    HEDDLE_RETURN_IF_ERROR(response.status().WithContext("list {}", UrlOf(prefix)));
    auto page = ReadListing(response->body, prefix);
    HEDDLE_RETURN_IF_ERROR(page.status().WithContext("list {}", UrlOf(prefix)));
    if (page->keys.empty() && page->folders.empty() && !page->next.empty()) {
      return DataLossError("{}: a page of a listing is empty, and not the last", UrlOf(prefix));
    }
    all.keys.insert(all.keys.end(), page->keys.begin(), page->keys.end());
    all.folders.insert(all.folders.end(), page->folders.begin(), page->folders.end());
    all.next = std::move(page->next);
    if (all.keys.size() + all.folders.size() > kMaxKeys) {
      return ResourceExhaustedError("{}: more than {} objects", UrlOf(prefix), kMaxKeys);
    }
  } while (!all.next.empty());
  std::sort(all.keys.begin(), all.keys.end());
  std::sort(all.folders.begin(), all.folders.end());
  return all;
}

Result<std::string> Client::BeginUpload(const std::string& key) const {
  HEDDLE_ASSIGN_OR_RETURN(const HttpResponse response,
                          Send({.method = Method::kPost}, key, {{"uploads", ""}}));
  auto id = ReadUploadId(response.body);
  HEDDLE_RETURN_IF_ERROR(id.status().WithContext("POST {}", UrlOf(key)));
  return id;
}

Result<std::string> Client::UploadPart(const std::string& key,
                                       const std::string& id,
                                       int64_t number,
                                       const Payload& payload,
                                       const Cancelled& cancelled) const {
  HEDDLE_ASSIGN_OR_RETURN(const HttpResponse response,
                          Send({.method = Method::kPut, .payload = payload, .cancelled = cancelled},
                               key, {{"partNumber", fmt::format("{}", number)}, {"uploadId", id}}));
  if (!IsPlainTag(response.etag)) {
    return DataLossError("PUT {}, part {}: the answer has no tag", UrlOf(key), number);
  }
  return response.etag;
}

Status Client::CompleteUpload(const std::string& key,
                              const std::string& id,
                              const std::vector<std::string>& etags) const {
  const std::string body = CompleteBody(etags);
  return Send({.method = Method::kPost, .payload = {.text = body}}, key, {{"uploadId", id}},
              IsCompleted)
      .status();
}

Status Client::AbortUpload(const std::string& key, const std::string& id) const {
  const Status status = Send({.method = Method::kDelete}, key, {{"uploadId", id}}).status();
  return status.code() == StatusCode::kNotFound ? Status::Ok() : status;
}

Result<std::vector<Upload>> Client::Uploads(const std::string& prefix) const {
  const auto response = Send({.method = Method::kGet}, "",
                             {{"encoding-type", "url"}, {"prefix", prefix}, {"uploads", ""}});
  HEDDLE_RETURN_IF_ERROR(response.status().WithContext("list uploads to {}", UrlOf(prefix)));
  auto uploads = ReadUploads(response->body, prefix);
  HEDDLE_RETURN_IF_ERROR(uploads.status().WithContext("list uploads to {}", UrlOf(prefix)));
  return uploads;
}

}  // namespace heddle::s3
