/// \file
/// Little-endian encoding into a growing buffer, and decoding that checks every length against the
/// bytes left before it allocates, because bytes from a file or a network are untrusted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace heddle {

static_assert(std::endian::native == std::endian::little, "Heddle stores and sends little-endian");

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Encodes values into a buffer. Thread: one caller at a time.
class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Put(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  /// Appends a 32-bit length and the bytes.
  void PutString(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    PutRaw(AsBytes(text));
  }
  void PutRaw(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  const Bytes& bytes() const { return out_; }
  Bytes Take() { return std::move(out_); }

 private:
  Bytes out_;
};

/// Decodes values that ByteWriter encoded. Errors: kDataLoss (fewer bytes are left than requested).
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> Result<T> Get() {
    HEDDLE_ASSIGN_OR_RETURN(auto raw, GetRaw(sizeof(T)));
    T value{};
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  Result<std::string> GetString() {
    HEDDLE_ASSIGN_OR_RETURN(const auto size, Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(auto raw, GetRaw(size));
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  Result<std::span<const std::byte>> GetRaw(size_t size) {
    if (size > bytes_.size()) {
      return DataLossError("truncated: {} bytes wanted, {} left", size, bytes_.size());
    }
    const auto raw = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return raw;
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace heddle
