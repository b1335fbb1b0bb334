/// \file
/// Checks that text is UTF-8. Text for other processes must be, because protobuf and JSON allow
/// nothing else.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle {

/// True if `text` is UTF-8 by RFC 3629: no overlong forms, no surrogates. Thread: any.
bool IsUtf8(std::string_view text);

/// `text` with each byte that belongs to no UTF-8 character as "\xNN". Thread: any.
std::string ToUtf8(std::string_view text);

/// Checks that `text` is UTF-8. Errors: kInvalidArgument, which names `what` and has the text with
/// its invalid bytes as \xNN.
Status CheckUtf8(std::string_view what, std::string_view text);

}  // namespace heddle
