/// \file
/// Numbers among the options of subcommands.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace heddle::cli {

/// The number in `text`, as given to `--option`. Errors: kInvalidArgument naming option, text and
/// range.
Result<int64_t> ParseOption(const std::string& option,
                            const std::string& text,
                            int64_t least,
                            int64_t most);

}  // namespace heddle::cli
