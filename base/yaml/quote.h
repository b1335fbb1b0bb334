/// \file
/// Text as a JSON string.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

/// `text` between quotation marks, with escapes that JSON and YAML read alike. Bytes from 0x80 on
/// stay as they are: UTF-8 is expected. Thread-safe.
std::string QuoteJson(std::string_view text);

}  // namespace heddle
