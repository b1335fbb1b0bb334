#include "cli/option_number.h"

#include <charconv>

namespace heddle::cli {

Result<int64_t> ParseOption(const std::string& option,
                            const std::string& text,
                            int64_t least,
                            int64_t most) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < least || number > most) {
    return InvalidArgumentError("--{} {}: a number from {} to {}", option, text, least, most);
  }
  return number;
}

}  // namespace heddle::cli
