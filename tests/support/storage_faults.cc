/// \file
/// A library for LD_PRELOAD that lets storage fail at a chosen call, whatever program runs:
///
///   HEDDLE_STORAGE_FOLDER  the folder below which calls count; an absolute path
///   HEDDLE_STORAGE_FAULTS  KIND:N:WHAT, several with commas between. The N-th call of a kind, or
///                          with N+ that one and all later ones, meets WHAT.
///   HEDDLE_STORAGE_SWITCH  a file: while it is not there, nothing counts. None: always.
///   HEDDLE_STORAGE_FIRED   a file that is made when a fault happens and it is not there
///   HEDDLE_STORAGE_LOG     a file to which each call that succeeded adds a line: KIND PATH, and
///   for
///                          rename KIND FROM TO
///
/// Kinds: open (for writing), write, pwrite, ftruncate, fsync (fdatasync, too), rename, mkdir.
/// What: the name of an errno below, "short" (half of the bytes are written), "slow" and "stuck"
/// (the call comes after ten seconds, after a minute), "kill" and "killed" (the process dies by
/// SIGKILL before and after the call). Calls are counted in each process. Like the functions that
/// it stands for, everything here may be called by any thread; it allocates nothing.
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

enum Kind { kOpen, kWrite, kPwrite, kFtruncate, kFsync, kRename, kMkdir, kKinds };
constexpr std::array<const char*, kKinds> kNames = {"open",  "write",  "pwrite", "ftruncate",
                                                    "fsync", "rename", "mkdir"};

struct Errno {
  const char* name;
  int value;
};
constexpr std::array kErrors = {Errno{"ENOSPC", ENOSPC}, Errno{"EDQUOT", EDQUOT},
                                Errno{"EIO", EIO},       Errno{"EROFS", EROFS},
                                Errno{"EINTR", EINTR},   Errno{"EINVAL", EINVAL}};
// Beside errno's numbers, which are positive.
enum What { kNothing = 0, kShort = -1, kKill = -2, kKilled = -3, kSlow = -4, kStuck = -5 };
constexpr unsigned kSlowSeconds = 10;
constexpr unsigned kStuckSeconds = 60;

struct Fault {
  Kind kind = kKinds;
  int first = 0;
  int last = 0;
  int what = kNothing;
};

struct Settings {
  std::array<char, PATH_MAX> folder = {};
  size_t folder_length = 0;
  const char* switch_file = nullptr;
  const char* fired_file = nullptr;
  int log = -1;
  std::array<Fault, 8> faults = {};
  size_t count = 0;
  bool active = false;
};
Settings settings;
std::array<std::atomic<int>, kKinds> calls = {};

[[noreturn]] void Refuse(const char* text) {
  std::fprintf(stderr, "storage_faults: HEDDLE_STORAGE_FAULTS: '%s' is not KIND:N:WHAT\n", text);
  ::_exit(99);
}

/// Reads one KIND:N:WHAT; the character behind it.
const char* ReadFault(const char* text, Fault& fault) {
  const char* const kind_end = std::strchr(text, ':');
  if (kind_end == nullptr) {
    Refuse(text);
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    const char* name = kNames[static_cast<size_t>(kind)];
    if (std::strlen(name) == static_cast<size_t>(kind_end - text) &&
        std::strncmp(text, name, std::strlen(name)) == 0) {
      fault.kind = static_cast<Kind>(kind);
    }
  }
  char* number_end = nullptr;
  fault.first = static_cast<int>(std::strtol(kind_end + 1, &number_end, 10));
  fault.last = *number_end == '+' ? INT_MAX : fault.first;
  number_end += *number_end == '+' ? 1 : 0;
  if (fault.kind == kKinds || fault.first < 1 || *number_end != ':') {
    Refuse(text);
  }
  const char* const what = number_end + 1;
  const size_t length = std::strcspn(what, ",");
  const auto is = [&](const char* name) {
    return std::strlen(name) == length && std::strncmp(what, name, length) == 0;
  };
  constexpr std::array kOthers = {std::pair("short", kShort), std::pair("slow", kSlow),
                                  std::pair("stuck", kStuck), std::pair("kill", kKill),
                                  std::pair("killed", kKilled)};
  for (const auto& [name, value] : kOthers) {
    fault.what = is(name) ? value : fault.what;
  }
  for (const Errno& error : kErrors) {
    fault.what = is(error.name) ? error.value : fault.what;
  }
  if (fault.what == kNothing) {
    Refuse(text);
  }
  return what + length;
}

__attribute__((constructor)) void ReadSettings() {
  const char* folder = std::getenv("HEDDLE_STORAGE_FOLDER");
  const char* text = std::getenv("HEDDLE_STORAGE_FAULTS");
  const char* log = std::getenv("HEDDLE_STORAGE_LOG");
  if (folder == nullptr || (text == nullptr && log == nullptr)) {
    return;
  }
  settings.active = true;
  if (log != nullptr) {
    settings.log = static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  settings.switch_file = std::getenv("HEDDLE_STORAGE_SWITCH");
  settings.fired_file = std::getenv("HEDDLE_STORAGE_FIRED");
  std::strncpy(settings.folder.data(), folder, settings.folder.size() - 1);
  settings.folder_length = std::strlen(settings.folder.data());
  while (text != nullptr && *text != '\0' && settings.count < settings.faults.size()) {
    text = ReadFault(text, settings.faults[settings.count++]);
    text += *text == ',' ? 1 : 0;
  }
}

bool Below(const char* path) {
  return settings.active &&
         std::strncmp(path, settings.folder.data(), settings.folder_length) == 0 &&
         (path[settings.folder_length] == '/' || path[settings.folder_length] == '\0');
}

/// The path of an open file, when it lies below the folder; else nothing.
class PathOf {
 public:
  explicit PathOf(int fd) {
    if (!settings.active) {
      return;
    }
    std::array<char, 32> link{};
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link.data(), path_.data(), path_.size() - 1);
    below_ = length > 0 && Below(path_.data());
  }
  const char* get() const { return below_ ? path_.data() : nullptr; }

 private:
  std::array<char, PATH_MAX> path_ = {};
  bool below_ = false;
};

void Die() {
  ::kill(::getpid(), SIGKILL);
}

/// What the call that is made now meets.
int Meets(Kind kind) {
  if (settings.switch_file != nullptr && ::syscall(SYS_access, settings.switch_file, F_OK) != 0) {
    return kNothing;
  }
  const int call = ++calls[static_cast<size_t>(kind)];
  for (size_t i = 0; i < settings.count; ++i) {
    const Fault& fault = settings.faults[i];
    if (fault.kind != kind || call < fault.first || call > fault.last) {
      continue;
    }
    if (settings.fired_file != nullptr && ::syscall(SYS_access, settings.fired_file, F_OK) != 0) {
      const long fd = ::syscall(SYS_openat, AT_FDCWD, settings.fired_file,
                                O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      ::syscall(SYS_close, fd);
    }
    if (fault.what == kKill) {
      Die();
    }
    return fault.what;
  }
  return kNothing;
}

void Log(Kind kind, const char* path, const char* target) {
  std::array<char, 2 * PATH_MAX + 32> line{};
  const int length =
      std::snprintf(line.data(), line.size(), "%s %s%s%s\n", kNames[static_cast<size_t>(kind)],
                    path, target == nullptr ? "" : " ", target == nullptr ? "" : target);
  ::syscall(SYS_write, settings.log, line.data(), length);
}

/// Makes the system call `call` of a kind, unless a fault stands in its place. `path` is null for
/// what does not count.
template <typename Call>
long Through(Kind kind, const char* path, const char* target, Call call) {
  const int what = path != nullptr ? Meets(kind) : kNothing;
  if (what > 0) {
    errno = what;
    return -1;
  }
  if (what == kSlow || what == kStuck) {
    ::sleep(what == kSlow ? kSlowSeconds : kStuckSeconds);
  }
  const long result = call(what == kShort);
  if (what == kKilled) {
    Die();
  }
  if (path != nullptr && settings.log >= 0 && result >= 0) {
    Log(kind, path, target);
  }
  return result;
}

size_t Half(size_t count, bool cut) {
  return cut && count > 1 ? count / 2 : count;
}

int Open(int folder, const char* path, int flags, mode_t mode) {
  const bool counts = ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0) && Below(path);
  return static_cast<int>(Through(kOpen, counts ? path : nullptr, nullptr, [&](bool /*cut*/) {
    return ::syscall(SYS_openat, folder, path, flags, mode);
  }));
}

int Rename(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return static_cast<int>(Through(kRename, Below(to) ? from : nullptr, to, [&](bool /*cut*/) {
    return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  }));
}

mode_t ModeOf(int flags, va_list arguments) {
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming, readability-inconsistent-declaration-parameter-name):
// the names are the C library's.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

ssize_t write(int fd, const void* data, size_t count) {
  return Through(kWrite, PathOf(fd).get(), nullptr,
                 [&](bool cut) { return ::syscall(SYS_write, fd, data, Half(count, cut)); });
}

ssize_t pwrite(int fd, const void* data, size_t count, off_t offset) {
  return Through(kPwrite, PathOf(fd).get(), nullptr, [&](bool cut) {
    return ::syscall(SYS_pwrite64, fd, data, Half(count, cut), offset);
  });
}
ssize_t pwrite64(int fd, const void* data, size_t count, off64_t offset)
    __attribute__((alias("pwrite")));

int ftruncate(int fd, off_t length) noexcept {
  return static_cast<int>(Through(kFtruncate, PathOf(fd).get(), nullptr, [&](bool /*cut*/) {
    return ::syscall(SYS_ftruncate, fd, length);
  }));
}
int ftruncate64(int fd, off64_t length) noexcept __attribute__((alias("ftruncate")));

int fsync(int fd) {
  return static_cast<int>(Through(kFsync, PathOf(fd).get(), nullptr,
                                  [&](bool /*cut*/) { return ::syscall(SYS_fsync, fd); }));
}

int fdatasync(int fd) {
  return static_cast<int>(Through(kFsync, PathOf(fd).get(), nullptr,
                                  [&](bool /*cut*/) { return ::syscall(SYS_fdatasync, fd); }));
}

int rename(const char* from, const char* to) noexcept {
  return Rename(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(
    int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return Rename(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(Through(kMkdir, Below(path) ? path : nullptr, nullptr, [&](bool /*cut*/) {
    return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode);
  }));
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, readability-inconsistent-declaration-parameter-name)
