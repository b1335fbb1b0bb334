#include "comm/links/sysfs.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/system/file.h"

namespace heddle::comm {

namespace fs = std::filesystem;

namespace {
constexpr int64_t kLineLimit = 1 << 16;
}  // namespace

std::string SysfsLine(const fs::path& path) {
  const auto text = ReadFile(path.string(), kLineLimit);
  return text.ok() ? text->substr(0, text->find('\n')) : std::string();
}

int64_t SysfsNumber(const fs::path& path, int64_t otherwise) {
  const std::string text = SysfsLine(path);
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && !text.empty()
             ? value
             : otherwise;
}

bool SysfsExists(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::vector<std::string> SysfsEntries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    names.push_back(i->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string SysfsLinkTarget(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::string() : target.filename().string();
}

std::string SpeedText(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:g} Gbit/s", bytes_per_second * 8 / 1e9)
                              : std::string("speed unknown");
}

}  // namespace heddle::comm
