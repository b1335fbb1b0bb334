/// \file
/// Writing to a descriptor until nothing is left.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle {

/// Writes all of `content` to a descriptor that blocks, whatever the kernel takes at a time. `path`
/// names it in messages. Errors: those of write; part of it may be written then.
Status WriteAll(int fd, std::string_view content, const std::string& path);

}  // namespace heddle
