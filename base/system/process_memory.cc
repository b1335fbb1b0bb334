#include "base/system/process_memory.h"

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include <malloc.h>

#include "base/system/file.h"

namespace heddle {
namespace {

// The number of kB behind `name` in /proc/self/status, in bytes; 0: none.
int64_t BytesInStatus(std::string_view name) {
  constexpr int64_t kTextLimit = int64_t{1} << 20;
  const Result<std::string> text = ReadFile("/proc/self/status", kTextLimit);
  const size_t found = text.ok() ? text->find(name) : std::string::npos;
  if (found == std::string::npos) {
    return 0;
  }
  const size_t digit = text->find_first_of("0123456789", found + name.size());
  int64_t kilobytes = 0;
  if (digit != std::string::npos) {
    std::from_chars(text->data() + digit, text->data() + text->size(), kilobytes);
  }
  return kilobytes << 10;
}

}  // namespace

int64_t ResidentBytes() {
  return BytesInStatus("VmRSS:");
}

int64_t ResidentPeak() {
  return BytesInStatus("VmHWM:");
}

void ForgetResidentPeak() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): the peak, if the kernel has it.
}

}  // namespace heddle
