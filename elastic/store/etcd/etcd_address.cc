#include "elastic/store/etcd/etcd_address.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::elastic {
namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr int64_t kShortestLease = 2;  // etcd's own least, with its usual settings.
constexpr int64_t kLongestLease = 60;

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

bool IsEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return false;
  }
  const std::optional<int64_t> port = Number(std::string_view(text).substr(colon + 1));
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  return port && *port > 0 && *port < 65536 &&
         (bracketed || host.find_first_of(":[]@ ") == std::string::npos);
}

bool IsPrefix(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '/';
  };
  return text.size() > 1 && text.back() != '/' && text.find("//") == std::string::npos &&
         std::all_of(text.begin(), text.end(), plain);
}

Status SetParameter(const std::string& word, EtcdAddress& address) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (name == "lease") {
    const std::optional<int64_t> seconds = Number(value);
    if (!seconds || *seconds < kShortestLease || *seconds > kLongestLease) {
      return InvalidArgumentError("lease={}: expected seconds, {} to {}", value, kShortestLease,
                                  kLongestLease);
    }
    address.lease = std::chrono::seconds(*seconds);
    return Status::Ok();
  }
  std::string* const file = name == "ca"     ? &address.ca_file
                            : name == "cert" ? &address.certificate_file
                            : name == "key"  ? &address.key_file
                                             : nullptr;
  if (file == nullptr) {
    return InvalidArgumentError("'{}' is unknown: expected ca, cert, key or lease", name);
  }
  if (value.empty()) {
    return InvalidArgumentError("{} names no file", name);
  }
  *file = value;
  return Status::Ok();
}

Result<EtcdAddress> Parse(std::string_view text) {
  EtcdAddress address;
  const size_t query = text.find('?');
  if (query != std::string_view::npos) {
    for (const std::string& word : Split(text.substr(query + 1), '&')) {
      HEDDLE_RETURN_IF_ERROR(SetParameter(word, address));
    }
    text = text.substr(0, query);
  }
  const size_t slash = std::min(text.find('/'), text.size());
  address.endpoints = Split(text.substr(0, slash), ',');
  for (const std::string& endpoint : address.endpoints) {
    if (!IsEndpoint(endpoint)) {
      return InvalidArgumentError("'{}' is not HOST:PORT", endpoint);
    }
  }
  address.prefix = text.substr(slash);
  if (!IsPrefix(address.prefix)) {
    return InvalidArgumentError(
        "'{}' is no prefix of keys: expected /NAME, of letters, digits and ._-/", address.prefix);
  }
  if (address.certificate_file.empty() != address.key_file.empty()) {
    return InvalidArgumentError("cert and key go together");
  }
  return address;
}

}  // namespace

bool IsEtcdAddress(const std::string& text) {
  return text.starts_with(kScheme);
}

Result<EtcdAddress> ParseEtcdAddress(const std::string& text) {
  if (!IsEtcdAddress(text)) {
    return InvalidArgumentError("'{}': expected etcd://HOST:PORT,HOST:PORT/PREFIX", text);
  }
  Result<EtcdAddress> address = Parse(std::string_view(text).substr(kScheme.size()));
  if (!address.ok()) {
    return address.status().WithContext("'{}'", text);
  }
  return address;
}

}  // namespace heddle::elastic
