#include "base/fail_point.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include <unistd.h>

#include "base/check.h"

namespace heddle {

namespace {

struct Chosen {
  std::string name;
  std::atomic<int> left{0};
  bool hangs = false;

  Chosen() {
    const char* const text =
        std::getenv("HEDDLE_FAIL_POINT");  // NOLINT(concurrency-mt-unsafe): nobody sets it
    if (text == nullptr || *text == '\0') {
      return;
    }
    std::string_view value(text);
    constexpr std::string_view kHang = ":hang";
    hangs = value.ends_with(kHang);
    value.remove_suffix(hangs ? kHang.size() : 0);
    const size_t colon = value.find(':');
    const char* const end = value.data() + value.size();
    int count = 0;
    const bool ok = colon != std::string_view::npos &&
                    std::from_chars(value.data() + colon + 1, end, count).ptr == end && count > 0;
    HEDDLE_CHECK(ok, "HEDDLE_FAIL_POINT={}: expected NAME:COUNT or NAME:COUNT:hang", text);
    name = value.substr(0, colon);
    left = count;
  }
};

}  // namespace

void FailPoint(std::string_view name) {
  static Chosen chosen;
  if (!chosen.name.empty() && chosen.name == name && --chosen.left == 0) {
    while (chosen.hangs) {
      ::pause();  // Signals come and go.
    }
    ::raise(SIGKILL);
  }
}

bool InjectsNaN(int64_t step) {
  static const char* const kPath =
      std::getenv("HEDDLE_SPOILT_STEPS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (kPath == nullptr) {
    return false;
  }
  std::ifstream file(kPath);
  for (int64_t listed = 0; file >> listed;) {
    if (listed == step) {
      return true;
    }
  }
  return false;
}

}  // namespace heddle
