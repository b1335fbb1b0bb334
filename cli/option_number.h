/// \file
/// Numbers among the options of subcommands.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace heddle::cli {

/// The number in `text`, an argument of that name. Errors: kInvalidArgument naming it, text and
/// range.
Result<int64_t> ParseNumber(const std::string& name,
                            const std::string& text,
                            int64_t least,
                            int64_t most);

/// The number in `text`, as given to `--option`. Errors: kInvalidArgument naming option, text and
/// range.
Result<int64_t> ParseOption(const std::string& option,
                            const std::string& text,
                            int64_t least,
                            int64_t most);

/// The whole seconds of a duration ("24h"), as given to `--option`: 1 s to `most`. Errors:
/// kInvalidArgument naming option and text.
Result<std::chrono::seconds> ParseLife(const std::string& option,
                                       const std::string& text,
                                       std::chrono::seconds most);

}  // namespace heddle::cli
