/// \file
/// Text that goes to other processes is UTF-8: protobuf and JSON carry nothing else.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle {

/// True if `text` is UTF-8, as RFC 3629 has it: no longer forms than needed, no surrogates.
/// Thread-safe.
bool IsUtf8(std::string_view text);

/// `text` with each byte that belongs to no UTF-8 character as "\xNN". Thread-safe.
std::string ToUtf8(std::string_view text);

/// Success if `text` is UTF-8. Errors: kInvalidArgument, naming `what` and the text.
Status CheckUtf8(std::string_view what, std::string_view text);

}  // namespace heddle
