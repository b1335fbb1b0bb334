#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace heddle {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  fmt::print(stderr, "{}:{}: check failed: {}{}{}\n", file, line, condition,
             message.empty() ? "" : ": ", message);
  std::abort();
}

}  // namespace heddle
