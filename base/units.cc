#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

namespace heddle {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Within each table the units that Format tries first, the coarsest, stand first.
constexpr std::array<Unit, 10> kSizeUnits = {{{"TiB", 0x1p40},
                                              {"GiB", 0x1p30},
                                              {"MiB", 0x1p20},
                                              {"KiB", 0x1p10},
                                              {"TB", 1e12},
                                              {"GB", 1e9},
                                              {"MB", 1e6},
                                              {"kB", 1e3},
                                              {"KB", 1e3},
                                              {"B", 1}}};

constexpr std::array<Unit, 18> kRateUnits = {{{"Tbit", 125e9},
                                              {"Gbit", 125e6},
                                              {"Mbit", 125e3},
                                              {"kbit", 125},
                                              {"bit", 0.125},
                                              {"Tbit/s", 125e9},
                                              {"Gbit/s", 125e6},
                                              {"Mbit/s", 125e3},
                                              {"kbit/s", 125},
                                              {"bit/s", 0.125},
                                              {"GB/s", 1e9},
                                              {"MB/s", 1e6},
                                              {"kB/s", 1e3},
                                              {"KB/s", 1e3},
                                              {"GiB/s", 0x1p30},
                                              {"MiB/s", 0x1p20},
                                              {"KiB/s", 0x1p10},
                                              {"B/s", 1}}};

constexpr std::array<Unit, 7> kDurationUnits = {
    {{"d", 86400e9}, {"h", 3600e9}, {"m", 60e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}}};

constexpr double kDurationMax = 100 * 365.25 * 86400e9;  // fits int64 nanoseconds (292 years)

/// A decimal number, one of `units`, at most one space between them; in the units' base unit.
std::optional<double> ParseQuantity(std::string_view text, std::span<const Unit> units) {
  if (text.empty() || text.front() < '0' || text.front() > '9') {
    return std::nullopt;  // from_chars would take "inf" and "-1"
  }
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::general);
  if (error != std::errc()) {
    return std::nullopt;
  }
  std::string_view name(rest, static_cast<size_t>(end - rest));
  if (name.starts_with(' ')) {
    name.remove_prefix(1);
  }
  for (const Unit& unit : units) {
    if (unit.name == name) {
      return number * unit.factor;
    }
  }
  return std::nullopt;
}

/// `value` in the first unit that leaves a whole number.
std::string FormatWhole(double value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    const double number = value / unit.factor;
    if (number == std::floor(number) && number * unit.factor == value &&
        (number != 0 || unit.factor == 1)) {
      return fmt::format("{:.0f}{}", number, unit.name);
    }
  }
  return "";
}

}  // namespace

Result<ByteSize> ParseByteSize(std::string_view text) {
  const std::optional<double> bytes = ParseQuantity(text, kSizeUnits);
  // 2^53: beyond it a double skips whole numbers.
  if (!bytes || *bytes != std::floor(*bytes) || *bytes > 0x1p53) {
    return InvalidArgumentError("expected a size, got '{}' ({})", text, kByteSizeHint);
  }
  return ByteSize{static_cast<int64_t>(*bytes)};
}

Result<ByteRate> ParseByteRate(std::string_view text) {
  const std::optional<double> rate = ParseQuantity(text, kRateUnits);
  if (!rate || *rate <= 0 || !std::isfinite(*rate)) {
    return InvalidArgumentError("expected a rate, got '{}' ({})", text, kByteRateHint);
  }
  return ByteRate{*rate};
}

Result<Duration> ParseDuration(std::string_view text) {
  const std::optional<double> nanoseconds = ParseQuantity(text, kDurationUnits);
  if (!nanoseconds || *nanoseconds > kDurationMax) {
    return InvalidArgumentError("expected a duration, got '{}' ({})", text, kDurationHint);
  }
  return Duration(static_cast<int64_t>(std::llround(*nanoseconds)));
}

std::string FormatByteSize(ByteSize size) {
  return FormatWhole(static_cast<double>(size.value), kSizeUnits);
}

std::string FormatByteRate(ByteRate rate) {
  const std::string whole = FormatWhole(rate.value, kRateUnits);
  return whole.empty() ? fmt::format("{:.17g}bit", rate.value * 8) : whole;
}

std::string FormatDuration(Duration duration) {
  return duration.count() == 0 ? "0s"
                               : FormatWhole(static_cast<double>(duration.count()), kDurationUnits);
}

}  // namespace heddle
