/// \file
/// HEDDLE_CHECK aborts, in every build, when an invariant of the program is violated. Bytes from
/// disk, network, YAML or the environment are validated first; invalid ones give an error Status.
#pragma once

#include <string>

#include <fmt/format.h>

namespace heddle {

/// Prints "FILE:LINE: check failed: CONDITION: MESSAGE" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file,
                              int line,
                              const char* condition,
                              const std::string& message);

#define HEDDLE_CHECK(condition, ...)                                                        \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      ::heddle::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                       \
  } while (false)

}  // namespace heddle
