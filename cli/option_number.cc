#include "cli/option_number.h"

#include <charconv>

#include "base/units.h"

namespace heddle::cli {

Result<int64_t> ParseNumber(const std::string& name,
                            const std::string& text,
                            int64_t least,
                            int64_t most) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < least || number > most) {
    return InvalidArgumentError("{} {}: a number from {} to {}", name, text, least, most);
  }
  return number;
}

Result<int64_t> ParseOption(const std::string& option,
                            const std::string& text,
                            int64_t least,
                            int64_t most) {
  return ParseNumber("--" + option, text, least, most);
}

Result<std::chrono::seconds> ParseLife(const std::string& option,
                                       const std::string& text,
                                       std::chrono::seconds most) {
  const auto parsed = ParseDuration(text);
  HEDDLE_RETURN_IF_ERROR(parsed.status().WithContext("--{}", option));
  if (*parsed < std::chrono::seconds(1) || *parsed > most) {
    return InvalidArgumentError("--{}: from 1s to {}h, got '{}'", option, most.count() / 3600,
                                text);
  }
  return std::chrono::floor<std::chrono::seconds>(*parsed);
}

}  // namespace heddle::cli
