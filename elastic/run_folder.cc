#include "elastic/run_folder.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

namespace heddle::elastic {
namespace {

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoError(errno, "write " + path);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<RunFolder>> RunFolder::Open(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(path));
  auto folder = std::unique_ptr<RunFolder>(new RunFolder(path));
  const std::string file = path + "/events.jsonl";
  folder->events_ = UniqueFd(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!folder->events_.valid()) {
    return ErrnoError(errno, "open " + file);
  }
  const off_t size = ::lseek(folder->events_.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(folder->events_.get(), &last, 1, size - 1) == 1 && last != '\n') {
    HEDDLE_RETURN_IF_ERROR(WriteAll(folder->events_.get(), "\n", file));
  }
  return folder;
}

void RunFolder::SetAddresses(const std::string& coordinator, const std::string& metrics) {
  coordinator_ = coordinator;
  metrics_ = metrics;
}

Status RunFolder::Append(const LogEvent& event) {
  // One write a line: a reader never sees half of one.
  return WriteAll(events_.get(), FormatLogEvent(event, WallClockSeconds()) + "\n",
                  path_ + "/events.jsonl");
}

Status RunFolder::WriteJobFile(const std::vector<ListWorkers::Entry>& workers) {
  std::string text = "{\"coordinator\": " + QuoteJson(coordinator_) +
                     ", \"metrics\": " + QuoteJson(metrics_) + ", \"workers\": [";
  bool first = true;
  for (const ListWorkers::Entry& worker : workers) {
    text += first ? "" : ", ";
    text +=
        "{\"name\": " + QuoteJson(worker.name) + ", \"pid\": " + std::to_string(worker.pid) + "}";
    first = false;
  }
  return WriteFileAtomically(path_ + "/job.json", text + "]}\n");
}

}  // namespace heddle::elastic
