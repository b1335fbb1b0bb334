#include "base/system/host.h"

#include <unistd.h>

#include "base/system/file.h"

namespace heddle {

std::string HostIdentity() {
  Result<std::string> boot = ReadFile("/proc/sys/kernel/random/boot_id", 1 << 10);
  if (boot.ok() && !boot->empty()) {
    while (!boot->empty() && boot->back() == '\n') {
      boot->pop_back();
    }
    return *boot;
  }
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace heddle
