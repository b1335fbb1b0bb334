/// \file
/// Finds the data files of a folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::data {

/// Whether `path` (relative, with '/') matches `glob`: '*', '?' and '[…]' match within one
/// component of the path, a leading "**/" matches any depth.
bool MatchesGlob(std::string_view glob, std::string_view path);

/// The regular files below `folder` that match one of `include` (none: all of them), as full paths
/// in bytewise order of their relative paths. Symbolic links are not followed; names that start
/// with '.' are left out, and so is everything below such a folder.
/// Errors: kInvalidArgument   no file matches
///         the system's       a folder cannot be read
Result<std::vector<std::string>> ListFiles(const std::string& folder,
                                           const std::vector<std::string>& include);

}  // namespace heddle::data
