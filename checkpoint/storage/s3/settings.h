/// \file
/// Which store, by which right: what every S3 tool takes from the environment, and how a bucket and
/// a key become a URL.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::s3 {

inline constexpr std::string_view kScheme = "s3://";

/// "s3://BUCKET/KEY". The key has no slash at its ends; it may be empty.
struct Location {
  std::string bucket;
  std::string key;
  friend bool operator==(const Location&, const Location&) = default;
};

/// Errors: kInvalidArgument for another scheme, a bucket that is no name of one (3 to 63 lower-case
/// letters, digits, dots and hyphens), a key that is longer than 900 bytes or has an empty, "." or
/// ".." segment or a control character.
Result<Location> ParseUrl(std::string_view url);

/// Percent-encodes all but unreserved characters (RFC 3986) and those in `keep`.
std::string Encode(std::string_view text, std::string_view keep = {});

struct Settings {
  std::string endpoint;  ///< "http://127.0.0.1:9000"; empty: Amazon's own, of the region.
  std::string region;
  std::string access_key;
  std::string secret_key;     ///< Never logged.
  std::string session_token;  ///< Likewise; may be empty.
  std::string ca_bundle;      ///< File of certificates; empty: the system's.
  int most_attempts = 8;      ///< Of one request.
  Duration timeout = {};      ///< Of one request, all its attempts together.
  int64_t part_bytes = int64_t{16}
                       << 20;  ///< Files above are uploaded in parts, at least so large.
};

/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
/// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_CA_BUNDLE, AWS_MAX_ATTEMPTS; and
/// HEDDLE_STORE_TIMEOUT, seconds. `variable` is getenv, or what a test has for it. Errors:
/// kInvalidArgument naming the variable.
Result<Settings> SettingsFrom(const std::function<const char*(const char*)>& variable);

/// Scheme, host and the path in front of a key: "https://BUCKET.s3.REGION.amazonaws.com/"; a custom
/// endpoint, or a bucket with dots, which no certificate covers, is addressed by path:
/// "ENDPOINT/BUCKET/".
std::string BaseUrl(const Settings& settings, const std::string& bucket);

}  // namespace heddle::s3
