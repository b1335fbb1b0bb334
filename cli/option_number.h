/// \file
/// Parses numbers among the options of subcommands.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace heddle::cli {

/// Returns the number in `text`, the value of the argument `name`, from `least` to `most`. Errors:
/// kInvalidArgument naming argument, text and range.
Result<int64_t> ParseNumber(const std::string& name,
                            const std::string& text,
                            int64_t least,
                            int64_t most);

/// Returns the number in `text`, the value of `--option`, from `least` to `most`. Errors:
/// kInvalidArgument naming option, text and range.
Result<int64_t> ParseOption(const std::string& option,
                            const std::string& text,
                            int64_t least,
                            int64_t most);

/// Returns the duration in `text` ("24h"), the value of `--option`, from 1 s to `most`, rounded
/// down to whole seconds. Errors: kInvalidArgument naming option and text.
Result<std::chrono::seconds> ParseLife(const std::string& option,
                                       const std::string& text,
                                       std::chrono::seconds most);

}  // namespace heddle::cli
