#include "checkpoint/storage/s3/http.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

namespace heddle::s3 {

namespace {

constexpr size_t kMaxIdle = 64;
constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kPiece = 64 << 10;

/// Once a process, before any thread uses libcurl.
void StartLibrary() {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(kStarted);
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeList>;

void Add(Headers& headers, const std::string& line) {
  headers.reset(curl_slist_append(headers.release(), line.c_str()));
}

/// The state that the callbacks of one exchange share.
struct Transfer {
  CURL* curl = nullptr;
  const HttpRequest* request = nullptr;
  HttpResponse response;
  size_t filled = 0;  ///< Bytes written to request->into.
  int64_t sent = 0;   ///< Bytes of the payload sent.
  bool is_too_long = false;
  Status read_error;  ///< Error of reading the file that is sent.
};

size_t OnBody(char* data, size_t /*one*/, size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  long status = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
  const std::span<std::byte> into = transfer.request->into;
  if (status == 206 && !into.empty()) {
    if (size > into.size() - transfer.filled) {
      transfer.is_too_long = true;
      return 0;
    }
    std::memcpy(into.data() + transfer.filled, data, size);
    transfer.filled += size;
    return size;
  }
  if (static_cast<int64_t>(transfer.response.body.size() + size) > transfer.request->most_bytes) {
    transfer.is_too_long = true;
    return 0;
  }
  transfer.response.body.append(data, size);
  return size;
}

/// The header's value when `line` is that header.
bool Matches(std::string_view line, std::string_view name, std::string& value) {
  if (line.size() <= name.size() || line[name.size()] != ':' ||
      !std::equal(name.begin(), name.end(), line.begin(),
                  [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); })) {
    return false;
  }
  line.remove_prefix(name.size() + 1);
  while (!line.empty() && line.front() == ' ') {
    line.remove_prefix(1);
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r' || line.back() == ' ')) {
    line.remove_suffix(1);
  }
  value = line.substr(0, kMaxHeaderBytes);
  return true;
}

size_t OnHeader(char* data, size_t /*one*/, size_t size, void* user) {
  HttpResponse& response = static_cast<Transfer*>(user)->response;
  const std::string_view line(data, size);
  std::string length;
  if (Matches(line, "content-length", length)) {
    std::from_chars(length.data(), length.data() + length.size(), response.length);
  } else if (!Matches(line, "etag", response.etag)) {
    Matches(line, "content-range", response.content_range);
  }
  return size;
}

size_t OnSend(char* data, size_t /*one*/, size_t room, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const Payload& payload = transfer.request->payload;
  const auto now = std::min(room, static_cast<size_t>(payload.size() - transfer.sent));
  if (now == 0) {
    return 0;
  }
  if (payload.fd < 0) {
    std::memcpy(data, payload.text.data() + transfer.sent, now);
  } else {
    const ssize_t got = ::pread(payload.fd, data, now, payload.offset + transfer.sent);
    if (got <= 0) {
      transfer.read_error = got < 0 ? ErrnoError(errno, "read what is uploaded")
                                    : DataLossError("what is uploaded has become shorter");
      return CURL_READFUNC_ABORT;
    }
    transfer.sent += got;
    return static_cast<size_t>(got);
  }
  transfer.sent += static_cast<int64_t>(now);
  return now;
}

/// libcurl begins again when a kept connection turns out to be closed.
int OnSeek(void* user, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) {
    return CURL_SEEKFUNC_CANTSEEK;
  }
  static_cast<Transfer*>(user)->sent = offset;
  return CURL_SEEKFUNC_OK;
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& cancelled = static_cast<Transfer*>(user)->request->cancelled;
  return cancelled && cancelled() ? 1 : 0;
}

Status Failure(CURLcode code, const char* detail, const Transfer& transfer) {
  const std::string text = *detail == '\0' ? curl_easy_strerror(code) : detail;
  if (transfer.is_too_long) {
    return DataLossError("the answer is longer than it may be");
  }
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return transfer.read_error.ok() ? CancelledError("given up") : transfer.read_error;
    case CURLE_OPERATION_TIMEDOUT:
      return DeadlineExceededError("{}", text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return UnauthenticatedError("{}: see AWS_CA_BUNDLE", text);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return InvalidArgumentError("{}: see AWS_ENDPOINT_URL", text);
    case CURLE_OUT_OF_MEMORY:
      return ResourceExhaustedError("{}", text);
    default:
      return UnavailableError("{}", text);
  }
}

}  // namespace

class Http::Handle {
 public:
  Handle() : curl_(curl_easy_init()) {}
  ~Handle() { curl_easy_cleanup(curl_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  CURL* get() const { return curl_; }

 private:
  CURL* const curl_;
};

Http::Http(Settings settings)
    : settings_(std::move(settings)),
      user_(settings_.access_key + ":" + settings_.secret_key),
      signature_(fmt::format("aws:amz:{}:s3", settings_.region)) {
  StartLibrary();
}

Http::~Http() = default;

std::unique_ptr<Http::Handle> Http::Take() const {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      auto handle = std::move(idle_.back());
      idle_.pop_back();
      return handle;
    }
  }
  return std::make_unique<Handle>();
}

void Http::Return(std::unique_ptr<Handle> handle) const {
  curl_easy_reset(handle->get());  // The options go, the connection stays.
  const MutexLock lock(mutex_);
  if (idle_.size() < kMaxIdle) {
    idle_.push_back(std::move(handle));
  }
}

Result<HttpResponse> Http::Exchange(const HttpRequest& request) const {
  auto handle = Take();
  CURL* const curl = handle->get();
  if (curl == nullptr) {
    return ResourceExhaustedError("libcurl has no memory");
  }
  Transfer transfer{.curl = curl, .request = &request, .response = {}, .read_error = {}};
  std::array<char, CURL_ERROR_SIZE> detail{};
  Headers headers;
  Add(headers, "x-amz-content-sha256: " + request.payload_sha256);
  if (!settings_.session_token.empty()) {
    Add(headers, "x-amz-security-token: " + settings_.session_token);
  }
  for (const auto& [name, value] : request.headers) {
    Add(headers, fmt::format("{}: {}", name, value));
  }
  if (request.method == HttpRequest::Method::kPost) {
    Add(headers, "Content-Type: application/xml");  // libcurl's own says that it is a form.
  }

  const auto milliseconds = [](Duration duration) {
    return static_cast<long>(
        std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
  };
  const long whole = std::max(milliseconds(request.timeout), 1L);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail.data());
  curl_easy_setopt(curl, CURLOPT_USERPWD, user_.c_str());
  curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, signature_.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "heddle");
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, whole);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, std::max(whole / 3, 1L));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(whole / 3000, 1L));
  if (!settings_.ca_bundle.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, settings_.ca_bundle.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, OnProgress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_READFUNCTION, OnSend);
  curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, OnSeek);
  curl_easy_setopt(curl, CURLOPT_SEEKDATA, &transfer);
  switch (request.method) {
    case HttpRequest::Method::kGet:
      break;
    case HttpRequest::Method::kHead:
      curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
      break;
    case HttpRequest::Method::kPut:
      curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
      curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
                       static_cast<curl_off_t>(request.payload.size()));
      break;
    case HttpRequest::Method::kPost:
      curl_easy_setopt(curl, CURLOPT_POST, 1L);
      curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.payload.text.size()));
      curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
                       request.payload.text.empty() ? "" : request.payload.text.data());
      break;
    case HttpRequest::Method::kDelete:
      curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE");
      break;
  }
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  Return(std::move(handle));
  if (code != CURLE_OK) {
    return Failure(code, detail.data(), transfer);
  }
  transfer.response.status = static_cast<int>(status);
  if (status == 206 && transfer.filled != request.into.size()) {
    return UnavailableError("{} bytes came, {} were asked for", transfer.filled,
                            request.into.size());
  }
  return std::move(transfer.response);
}

Result<std::string> Sha256(const Payload& payload) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  std::array<unsigned char, 32> digest{};
  bool ok = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  if (payload.fd < 0) {
    ok = ok && EVP_DigestUpdate(context.get(), payload.text.data(), payload.text.size()) == 1;
  }
  std::vector<char> piece(payload.fd < 0 ? 0 : kPiece);
  for (int64_t at = 0; payload.fd >= 0 && at < payload.bytes;) {
    const auto wanted = std::min(piece.size(), static_cast<size_t>(payload.bytes - at));
    const ssize_t got = ::pread(payload.fd, piece.data(), wanted, payload.offset + at);
    if (got <= 0) {
      return got < 0 ? ErrnoError(errno, "read what is uploaded")
                     : DataLossError("what is uploaded has become shorter");
    }
    ok = ok && EVP_DigestUpdate(context.get(), piece.data(), static_cast<size_t>(got)) == 1;
    at += got;
  }
  if (!ok || EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) {
    return InternalError("SHA-256 failed");
  }
  std::string text;
  for (const unsigned char byte : digest) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

}  // namespace heddle::s3
