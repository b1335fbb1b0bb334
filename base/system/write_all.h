/// \file
/// Writes a whole text to a descriptor.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle {

/// Writes all of `content` to a blocking descriptor, with as many calls of write as needed. `path`
/// names it in messages. Errors: those of write; a part may have been written then.
Status WriteAll(int fd, std::string_view content, const std::string& path);

}  // namespace heddle
