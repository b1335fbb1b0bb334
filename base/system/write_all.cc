#include "base/system/write_all.h"

#include <cerrno>

#include <unistd.h>

namespace heddle {

Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoError(errno, "write " + path);
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return Status::Ok();
}

}  // namespace heddle
