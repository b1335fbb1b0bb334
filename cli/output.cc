#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/system/file.h"
#include "cli/command.h"

namespace heddle::cli {

int Report(const Status& status) {
  if (status.ok()) {
    return kDone;
  }
  const bool positioned = status.message().find(": error: ") != std::string::npos;
  std::fprintf(stderr, "%s%s\n", positioned ? "" : "error: ", status.message().c_str());
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated:
    case StatusCode::kFailedPrecondition:
      return kBadUsage;
    default:
      return kFailed;
  }
}

int ReportCall(const Status& status, const std::string& address) {
  if (status.code() != StatusCode::kUnavailable && status.code() != StatusCode::kDeadlineExceeded) {
    return Report(status);
  }
  std::fprintf(stderr, "error: coordinator %s does not answer: %s\n", address.c_str(),
               status.message().c_str());
  return kBadUsage;
}

int EndOutput(int code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int reason = errno;
  if (flushed && std::ferror(stdout) == 0) {
    return code;
  }
  std::fprintf(stderr, "error: standard output: %s; what was printed there is not complete\n",
               reason == 0 ? "a write failed" : ErrnoError(reason, "write").message().c_str());
  return code == kDone ? kFailed : code;
}

void PrintNote(const std::string& line) {
  std::fprintf(stderr, "note: %s\n", line.c_str());
}

Result<std::string> FindRun(const std::string& given) {
  if (!given.empty()) {
    return given;
  }
  std::string folder;
  std::filesystem::file_time_type newest;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("runs", ignored)) {
    const auto written = std::filesystem::last_write_time(entry.path() / "job.json", ignored);
    if (!ignored && (folder.empty() || written > newest)) {
      folder = entry.path().string();
      newest = written;
    }
  }
  if (folder.empty()) {
    return InvalidArgumentError(
        "no run under ./runs: name the coordinator with --coordinator HOST:PORT or the run with "
        "--run DIR");
  }
  return folder;
}

Result<std::string> FindCoordinator(const std::string& given, const std::string& run) {
  if (!given.empty()) {
    return given;
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string folder, FindRun(run));
  const std::string path = folder + "/job.json";
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 16 << 20));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("coordinator") || !json["coordinator"].is_string()) {
    return InvalidArgumentError("{}: names no coordinator", path);
  }
  return json["coordinator"].get<std::string>();
}

}  // namespace heddle::cli
