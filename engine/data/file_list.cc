#include "engine/data/file_list.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fnmatch.h>

namespace heddle::data {

namespace fs = std::filesystem;

bool MatchesGlob(std::string_view glob, std::string_view path) {
  constexpr std::string_view kAnyDepth = "**/";
  const std::string text(path);
  if (!glob.starts_with(kAnyDepth)) {
    return ::fnmatch(std::string(glob).c_str(), text.c_str(), FNM_PATHNAME) == 0;
  }
  const std::string rest(glob.substr(kAnyDepth.size()));
  for (size_t start = 0; start != std::string::npos;) {
    if (::fnmatch(rest.c_str(), text.c_str() + start, FNM_PATHNAME) == 0) {
      return true;
    }
    const size_t slash = text.find('/', start);
    start = slash == std::string::npos ? slash : slash + 1;
  }
  return false;
}

Result<std::vector<std::string>> ListFiles(const std::string& folder,
                                           const std::vector<std::string>& include) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator walk(folder, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    const fs::path& path = walk->path();
    if (path.filename().native().starts_with('.')) {
      walk.disable_recursion_pending();
      continue;
    }
    // symlink_status(): what the entry is, not what it points to.
    std::error_code gone;  // a file may vanish while the folder is read
    if (!fs::is_regular_file(walk->symlink_status(gone))) {
      continue;
    }
    const std::string name = path.lexically_relative(folder).generic_string();
    const auto matches = [&](const std::string& glob) { return MatchesGlob(glob, name); };
    if (include.empty() || std::any_of(include.begin(), include.end(), matches)) {
      names.push_back(name);
    }
  }
  if (error) {
    return ErrnoError(error.value(), "read folder " + folder);
  }
  if (names.empty()) {
    return InvalidArgumentError(
        "{}: no file matches {}", folder,
        include.empty() ? "'**/*'" : fmt::format("'{}'", fmt::join(include, "', '")));
  }
  std::sort(names.begin(), names.end());
  for (std::string& name : names) {
    name = (fs::path(folder) / name).string();
  }
  return names;
}

}  // namespace heddle::data
