#include "cli/engine_commands.h"

#include <array>
#include <cerrno>

#include <unistd.h>

#include "base/system/file.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Forwarded : public Command {
 public:
  Forwarded(const EngineCommand& command, char** argv) : command_(command), argv_(argv) {}
  std::string name() const override { return std::string(command_.name); }
  std::string summary() const override { return std::string(command_.summary); }
  std::string examples() const override { return ""; }
  void Declare(Arguments& arguments) override { arguments.Unparsed(); }
  int Run() override {
    const Result<std::string> path = EnginePath();
    if (!path.ok()) {
      return Report(path.status());
    }
    ::execv(path->c_str(), argv_);
    return Report(ErrnoError(errno, "start " + *path));
  }

 private:
  EngineCommand command_;
  char** argv_;
};

}  // namespace

Result<std::string> EnginePath() {
  std::array<char, 4096> self = {};
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size());
  if (length <= 0) {
    return ErrnoError(errno, "read /proc/self/exe");
  }
  std::string path =
      FolderOf(std::string(self.data(), static_cast<size_t>(length))) + "/heddle-engine";
  if (!FileExists(path)) {
    return NotFoundError("{} is missing: it belongs beside heddle", path);
  }
  return path;
}

std::unique_ptr<Command> MakeForwarded(const EngineCommand& command, char** argv) {
  return std::make_unique<Forwarded>(command, argv);
}

}  // namespace heddle::cli
