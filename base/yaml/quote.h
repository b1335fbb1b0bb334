/// \file
/// Quotes text as a JSON string.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

/// `text` in quotation marks, with escapes that JSON and YAML read alike. Bytes from 0x80 on are
/// unchanged, as UTF-8 is expected. Thread: any.
std::string QuoteJson(std::string_view text);

}  // namespace heddle
