#include "base/system/re_execute.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "base/system/file.h"

namespace heddle {
namespace {

constexpr int64_t kMaxBytes = 4 << 20;  // Above the kernel's bound for arguments.

}  // namespace

Result<std::vector<std::string>> OwnArguments() {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/cmdline", kMaxBytes));
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Status ReExecute(const std::string& name, const std::string& value) {
  HEDDLE_ASSIGN_OR_RETURN(std::vector<std::string> words, OwnArguments());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  // Other threads read no variables after their start.
  if (::setenv(name.c_str(), value.c_str(), 1) != 0) {  // NOLINT(concurrency-mt-unsafe)
    return ErrnoError(errno, "set " + name);
  }
  if (::close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC) != 0) {
    return ErrnoError(errno, "close descriptors");
  }
  // By its path, whose last part is the process' name for others; it may have been replaced since.
  std::error_code unknown;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
  ::execv(path.c_str(), arguments.data());
  ::execv("/proc/self/exe", arguments.data());
  return ErrnoError(errno, "start /proc/self/exe again");
}

}  // namespace heddle
