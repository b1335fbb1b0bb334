#include "checkpoint/storage/s3/settings.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace heddle::s3 {

namespace {

constexpr size_t kMaxKeyBytes = 900;  // S3's limit is 1024; names of files come behind.
constexpr int64_t kDefaultTimeoutSeconds = 60;

bool IsBucketName(std::string_view name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return name.size() >= 3 && name.size() <= 63 && is_plain(name.front()) && is_plain(name.back()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_plain(c) || c == '.' || c == '-'; });
}

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

Status CheckSegments(std::string_view url, std::string_view key) {
  for (size_t begin = 0; !key.empty() && begin <= key.size();) {
    const size_t slash = std::min(key.find('/', begin), key.size());
    const std::string_view segment = key.substr(begin, slash - begin);
    if (segment.empty() || segment == "." || segment == "..") {
      return InvalidArgumentError("{}: an empty segment, '.' or '..' is no part of a key", url);
    }
    begin = slash + 1;
  }
  return Status::Ok();
}

Result<int64_t> Number(const char* name, const char* text, int64_t fallback, int64_t most) {
  if (text == nullptr || *text == '\0') {
    return fallback;
  }
  const std::string_view digits = text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 1 || value > most) {
    return InvalidArgumentError("{}={}: expected a whole number from 1 to {}", name, digits, most);
  }
  return value;
}

}  // namespace

Result<Location> ParseUrl(std::string_view url) {
  if (!url.starts_with(kScheme)) {
    return InvalidArgumentError("{}: expected s3://BUCKET/PREFIX", url);
  }
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  Location location{.bucket = std::string(rest.substr(0, slash)), .key = {}};
  if (!IsBucketName(location.bucket)) {
    return InvalidArgumentError("{}: '{}' is no name of a bucket", url, location.bucket);
  }
  std::string_view key = rest.substr(std::min(slash + 1, rest.size()));
  if (key.ends_with('/')) {
    key.remove_suffix(1);
  }
  if (key.size() > kMaxKeyBytes ||
      std::any_of(key.begin(), key.end(), [](char c) { return c >= 0 && (c < ' ' || c == 127); })) {
    return InvalidArgumentError("{}: keys have no control characters and at most {} bytes", url,
                                kMaxKeyBytes);
  }
  HEDDLE_RETURN_IF_ERROR(CheckSegments(url, key));
  location.key = key;
  return location;
}

std::string Encode(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text) {
    if (IsUnreserved(c) || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<Settings> SettingsFrom(const std::function<const char*(const char*)>& variable) {
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (const char* value = variable(name); value != nullptr && *value != '\0') {
        return std::string(value);
      }
    }
    return std::string();
  };
  Settings settings;
  settings.endpoint = first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  settings.region = first({"AWS_REGION", "AWS_DEFAULT_REGION"});
  settings.access_key = first({"AWS_ACCESS_KEY_ID"});
  settings.secret_key = first({"AWS_SECRET_ACCESS_KEY"});
  settings.session_token = first({"AWS_SESSION_TOKEN"});
  settings.ca_bundle = first({"AWS_CA_BUNDLE"});
  if (settings.access_key.empty() || settings.secret_key.empty()) {
    return InvalidArgumentError(
        "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  }
  while (settings.endpoint.ends_with('/')) {
    settings.endpoint.pop_back();
  }
  if (!settings.endpoint.empty() && !settings.endpoint.starts_with("http://") &&
      !settings.endpoint.starts_with("https://")) {
    return InvalidArgumentError("AWS_ENDPOINT_URL={}: expected http://… or https://…",
                                settings.endpoint);
  }
  if (settings.region.empty()) {
    settings.region = "us-east-1";
  }
  if (!std::all_of(settings.region.begin(), settings.region.end(), IsUnreserved)) {
    return InvalidArgumentError("AWS_REGION={}: no name of a region", settings.region);
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const int64_t attempts,
      Number("AWS_MAX_ATTEMPTS", variable("AWS_MAX_ATTEMPTS"), settings.most_attempts, 100));
  settings.most_attempts = static_cast<int>(attempts);
  HEDDLE_ASSIGN_OR_RETURN(const int64_t seconds,
                          Number("HEDDLE_STORE_TIMEOUT", variable("HEDDLE_STORE_TIMEOUT"),
                                 kDefaultTimeoutSeconds, 3600));
  settings.timeout = std::chrono::seconds(seconds);
  return settings;
}

std::string BaseUrl(const Settings& settings, const std::string& bucket) {
  if (!settings.endpoint.empty()) {
    return fmt::format("{}/{}/", settings.endpoint, bucket);
  }
  const std::string host = fmt::format("s3.{}.amazonaws.com", settings.region);
  return bucket.find('.') == std::string::npos ? fmt::format("https://{}.{}/", bucket, host)
                                               : fmt::format("https://{}/{}/", host, bucket);
}

}  // namespace heddle::s3
