#include "elastic/report/run_events.h"

#include <cerrno>
#include <charconv>
#include <cmath>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/unique_fd.h"
#include "base/units.h"

namespace heddle::elastic {
namespace {

using Json = nlohmann::ordered_json;

// What a plan with its lists needs is a tenth of it; what is deeper would end the stack.
constexpr int kMaxDepth = 64;
constexpr size_t kMaxLineBytes = 64 << 20;

LogEvent::Value ValueOf(const Json& json) {
  if (json.is_number_integer()) {
    return json.get<int64_t>();
  }
  if (json.is_number()) {
    return json.get<double>();
  }
  if (json.is_string()) {
    return json.get<std::string>();
  }
  return RawJson{json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace

Result<RunEvent> ParseEvent(std::string_view line) {
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; };
  const Json json = Json::parse(line, is_shallow, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("time") || !json["time"].is_number() ||
      !json.contains("event") || !json["event"].is_string()) {
    return InvalidArgumentError("it is no event: an object with \"time\" and \"event\"");
  }
  RunEvent event{.time = json["time"].get<double>(),
                 .event = {.kind = json["event"].get<std::string>(), .fields = {}},
                 .line = std::string(line)};
  for (const auto& [name, value] : json.items()) {
    if (name != "time" && name != "event" && !value.is_null()) {
      event.event.fields.emplace_back(name, ValueOf(value));
    }
  }
  return event;
}

bool EndsJob(const RunEvent& event) {
  return event.event.kind == "job_finished" || event.event.kind == "job_failed";
}

Result<std::string> ReadEventBytes(const std::string& run_folder, int64_t offset) {
  if (offset < 0) {
    return InvalidArgumentError("offset {}: at least 0", offset);
  }
  const std::string path = run_folder + "/events.jsonl";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return errno == ENOENT ? Result<std::string>(std::string()) : ErrnoError(errno, "open " + path);
  }
  std::string bytes(kMaxEventBytes, '\0');
  ssize_t got = -1;
  do {
    got = ::pread(file.get(), bytes.data(), bytes.size(), offset);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return ErrnoError(errno, "read " + path);
  }
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

Result<double> ParseSince(const std::string& text, double now) {
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, seconds);
  if (parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(seconds) && seconds >= 0) {
    return seconds;
  }
  const Result<Duration> before = ParseDuration(text);
  if (!before.ok()) {
    return InvalidArgumentError(
        "--since {}: write a duration back from now (30s, 10m, 2h) or seconds since the epoch",
        text);
  }
  return now - Seconds(*before);
}

// What is not a whole line yet is read again the next time: a coordinator that starts removes the
// half of a line that its predecessor has left.
Result<std::vector<std::string>> EventReader::Next() {
  std::string text;
  size_t end = std::string::npos;
  while (end == std::string::npos) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string more,
                            read_(offset_ + static_cast<int64_t>(text.size())));
    if (more.empty()) {
      return std::vector<std::string>();
    }
    text += more;
    end = text.rfind('\n');
    if (end == std::string::npos && text.size() > kMaxLineBytes) {
      return InvalidArgumentError("the line at byte {} has more than {} bytes", offset_,
                                  kMaxLineBytes);
    }
  }
  offset_ += static_cast<int64_t>(end) + 1;
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= end;) {
    const size_t newline = text.find('\n', begin);
    lines.push_back(text.substr(begin, newline - begin));
    begin = newline + 1;
  }
  return lines;
}

}  // namespace heddle::elastic
