/// \file
/// Reads sysfs: small files of one line, which may be missing, unreadable or invalid.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle::comm {

/// The first line of a file; empty: the file is missing or cannot be read.
std::string SysfsLine(const std::filesystem::path& path);
/// The decimal number in a file; `otherwise` if it contains none.
int64_t SysfsNumber(const std::filesystem::path& path, int64_t otherwise);
/// Whether the entry exists; a dangling symbolic link counts.
bool SysfsExists(const std::filesystem::path& path);
/// The sorted names of a folder's entries; empty if the folder does not exist.
std::vector<std::string> SysfsEntries(const std::filesystem::path& folder);
/// The last component of a symbolic link's target; empty: not a symbolic link.
std::string SysfsLinkTarget(const std::filesystem::path& link);

/// The rate as text, "25 Gbit/s"; "speed unknown" for 0.
std::string SpeedText(double bytes_per_second);

}  // namespace heddle::comm
