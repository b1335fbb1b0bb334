/// \file
/// Text that goes to other processes is UTF-8: protobuf and JSON carry nothing else.
#pragma once

#include <string_view>

#include "base/status.h"

namespace heddle {

/// Whether `text` is UTF-8, as RFC 3629 has it: no longer forms than needed, no surrogates.
/// Thread-safe.
bool IsUtf8(std::string_view text);

/// Whether it is. Errors: kInvalidArgument naming `what`, with the text's odd bytes as \xNN.
Status CheckUtf8(std::string_view what, std::string_view text);

}  // namespace heddle
