/// \file
/// Small files of the kernel's, each with one line that may be missing, refused or nonsense.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle::comm {

/// The first line of a file; empty: not there, or its driver refuses to say.
std::string SysfsLine(const std::filesystem::path& path);
/// The decimal number that a file holds; `otherwise` when it holds none.
int64_t SysfsNumber(const std::filesystem::path& path, int64_t otherwise);
/// Whether there is such an entry, a dangling link included.
bool SysfsExists(const std::filesystem::path& path);
/// Names in a folder, in order; none where there is no folder.
std::vector<std::string> SysfsEntries(const std::filesystem::path& folder);
/// The last part of where a symbolic link leads; empty: it is none.
std::string SysfsLinkTarget(const std::filesystem::path& link);

/// "25 Gbit/s"; "speed unknown" for 0.
std::string SpeedText(double bytes_per_second);

}  // namespace heddle::comm
