#include "base/fail_point.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/check.h"

namespace heddle {

namespace {

struct Chosen {
  std::string name;
  std::atomic<int> left{0};

  Chosen() {
    const char* const text =
        std::getenv("HEDDLE_FAIL_POINT");  // NOLINT(concurrency-mt-unsafe): nobody sets it
    if (text == nullptr || *text == '\0') {
      return;
    }
    const std::string_view value(text);
    const size_t colon = value.find(':');
    const char* const end = value.data() + value.size();
    int count = 0;
    const bool ok = colon != std::string_view::npos &&
                    std::from_chars(value.data() + colon + 1, end, count).ptr == end && count > 0;
    HEDDLE_CHECK(ok, "HEDDLE_FAIL_POINT={}: expected NAME:COUNT", value);
    name = value.substr(0, colon);
    left = count;
  }
};

}  // namespace

void FailPoint(std::string_view name) {
  static Chosen chosen;
  if (!chosen.name.empty() && chosen.name == name && --chosen.left == 0) {
    ::raise(SIGKILL);
  }
}

}  // namespace heddle
