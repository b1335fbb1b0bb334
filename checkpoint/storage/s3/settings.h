/// \file
/// The settings of a store, which are read from the environment variables that S3 tools use, and
/// the URLs of buckets and keys.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::s3 {

inline constexpr std::string_view kScheme = "s3://";

/// The parts of a URL "s3://BUCKET/KEY". The key has no slash at its ends; it may be empty.
struct Location {
  std::string bucket;
  std::string key;
  friend bool operator==(const Location&, const Location&) = default;
};

/// Parses a URL. Errors: kInvalidArgument (another scheme; an invalid bucket name, which has 3 to
/// 63 lower-case letters, digits, dots and hyphens; a key that is longer than 900 bytes or has an
/// empty, "." or ".." segment or a control character).
Result<Location> ParseUrl(std::string_view url);

/// Percent-encodes all characters except the unreserved ones (RFC 3986) and those in `keep`.
std::string Encode(std::string_view text, std::string_view keep = {});

struct Settings {
  std::string endpoint;  ///< URL, "http://127.0.0.1:9000"; empty: Amazon's for the region.
  std::string region;
  std::string access_key;
  std::string secret_key;     ///< Never logged.
  std::string session_token;  ///< Never logged; may be empty.
  std::string ca_bundle;      ///< File of certificates; empty: those of the system.
  int most_attempts = 8;      ///< The most attempts of a request.
  Duration timeout = {};      ///< Time limit of a request, for all attempts together.
  int64_t part_bytes = int64_t{16}
                       << 20;  ///< Least size of a part; larger files are uploaded in parts.
};

/// Reads the settings from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION
/// or AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_CA_BUNDLE, AWS_MAX_ATTEMPTS
/// and HEDDLE_STORE_TIMEOUT (seconds). `variable` is getenv, or a test's replacement. Errors:
/// kInvalidArgument naming the variable.
Result<Settings> SettingsFrom(const std::function<const char*(const char*)>& variable);

/// The URL before a key: "https://BUCKET.s3.REGION.amazonaws.com/". A custom endpoint, or a bucket
/// with dots, which no certificate covers, is addressed by path: "ENDPOINT/BUCKET/".
std::string BaseUrl(const Settings& settings, const std::string& bucket);

}  // namespace heddle::s3
