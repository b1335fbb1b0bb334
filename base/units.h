/// \file
/// Quantities with units, as users write them in job files and on the command line: sizes ("64MiB",
/// "500MB"), rates ("1Gbit", "10MB/s") and durations ("500ms", "2s", "5m"). A bare number is
/// refused if a unit is needed, because "timeout: 500" is ambiguous.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace heddle {

/// An amount of memory or storage. Unit: bytes.
struct ByteSize {
  int64_t value = 0;
  friend auto operator<=>(const ByteSize&, const ByteSize&) = default;
};

/// The speed of a link or a disk. Unit: bytes per second.
struct ByteRate {
  double value = 0;
  friend auto operator<=>(const ByteRate&, const ByteRate&) = default;
};

/// Hints for error messages: what each kind of quantity accepts.
inline constexpr std::string_view kByteSizeHint = "write a number and a unit: 64MiB, 1GiB, 500MB";
inline constexpr std::string_view kByteRateHint =
    "write a number and a unit: 100Mbit, 1Gbit, 10MB/s";
inline constexpr std::string_view kDurationHint = "write a number and a unit: 500ms, 2s, 5m";

/// Parses a size. Units: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024).
/// The number is decimal, not negative, and may have a fraction if the product is a whole number of
/// bytes. Errors: kInvalidArgument with kByteSizeHint.
Result<ByteSize> ParseByteSize(std::string_view text);

/// Parses a rate, which is greater than zero. Units: bit, kbit, Mbit, Gbit, Tbit (powers of 1000,
/// per second, with or without "/s"); B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s. Errors:
/// kInvalidArgument with kByteRateHint.
Result<ByteRate> ParseByteRate(std::string_view text);

/// Parses a duration. Units: ns, us, ms, s, m (minutes), h, d. Rounded to nanoseconds; at most 100
/// years. Errors: kInvalidArgument with kDurationHint.
Result<Duration> ParseDuration(std::string_view text);

/// The shortest text without a fraction that ParseByteSize reads as `size`: "64MiB".
std::string FormatByteSize(ByteSize size);
/// The shortest text without a fraction that ParseByteRate reads as `rate`: "1Gbit". A rate that is
/// not a whole number of bits per second is printed in bit with all its digits.
std::string FormatByteRate(ByteRate rate);
/// The shortest text without a fraction that ParseDuration reads as `duration`: "1500ms".
std::string FormatDuration(Duration duration);

}  // namespace heddle
