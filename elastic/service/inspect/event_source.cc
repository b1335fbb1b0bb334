#include "elastic/service/inspect/event_source.h"

#include <memory>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/system/connect.h"
#include "base/system/file.h"
#include "elastic/grpc/client.h"

namespace heddle::elastic {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(200);
// The time without an event after which the coordinator is asked whether it runs.
constexpr Duration kQuiet = std::chrono::seconds(2);

Status CheckJob(const std::string& job_id, const std::string& job, const std::string& where) {
  return job_id.starts_with(job)
             ? Status::Ok()
             : Status(InvalidArgumentError("{}: the job is {}, not {}", where, job_id, job));
}

// True if the coordinator that the run's job.json names answers.
bool HasCoordinator(const std::string& folder, const Credentials& credentials) {
  const Result<std::string> text = ReadFile(folder + "/job.json", 16 << 20);
  const nlohmann::json json =
      text.ok() ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (!json.is_object() || !json.contains("coordinator") || !json["coordinator"].is_string()) {
    return false;
  }
  const std::string address = json["coordinator"].get<std::string>();
  const auto guarded = json.find("certificates");
  if (credentials.empty() && guarded != json.end() && *guarded == true) {
    return ConnectTo(address, After(kQuiet)).ok();  // A call would be counted as refused.
  }
  const Status answer = CoordinatorClient(address, credentials, kQuiet).Status().status();
  // A refusal is an answer, too.
  return answer.ok() || answer.code() == StatusCode::kUnauthenticated ||
         answer.code() == StatusCode::kPermissionDenied;
}

}  // namespace

Result<EventSource> EventSource::OfFolder(const std::string& folder,
                                          const std::string& job,
                                          const Credentials& credentials) {
  if (!FileExists(folder + "/events.jsonl")) {
    return NotFoundError("{}: no run is there (it has no events.jsonl)", folder);
  }
  if (!job.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(std::string hash, ReadFile(folder + "/job.hash", 1 << 10));
    HEDDLE_RETURN_IF_ERROR(CheckJob(hash.substr(0, hash.find('\n')), job, folder));
  }
  return EventSource([folder](int64_t offset) { return ReadEventBytes(folder, offset); },
                     [folder, credentials] { return HasCoordinator(folder, credentials); });
}

Result<EventSource> EventSource::OfCoordinator(const std::string& address,
                                               const Credentials& credentials,
                                               const std::string& job) {
  const auto client = std::make_shared<CoordinatorClient>(address, credentials);
  HEDDLE_ASSIGN_OR_RETURN(const EventBytes first, client->Events(0));
  HEDDLE_RETURN_IF_ERROR(CheckJob(first.job_id, job, address));
  return EventSource(
      [client, address, id = first.job_id](int64_t offset) -> Result<std::string> {
        HEDDLE_ASSIGN_OR_RETURN(EventBytes bytes, client->Events(offset));
        HEDDLE_RETURN_IF_ERROR(CheckJob(bytes.job_id, id, address));
        return std::move(bytes.text);
      },
      [] { return true; });
}

Result<std::vector<RunEvent>> EventSource::Next() {
  std::vector<RunEvent> events;
  while (events.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader_.Next());
    if (lines.empty()) {
      break;
    }
    for (const std::string& line : lines) {
      if (Result<RunEvent> event = ParseEvent(line); event.ok()) {
        events.push_back(*std::move(event));
      } else {
        ++left_out_;
      }
    }
  }
  return events;
}

Status EventSource::ReadAll(const std::function<bool(const RunEvent&)>& show) {
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<RunEvent> events, Next());
    if (events.empty()) {
      return Status::Ok();
    }
    for (const RunEvent& event : events) {
      if (!show(event)) {
        return Status::Ok();
      }
    }
  }
}

Status EventSource::Follow(const std::function<bool(const RunEvent&)>& show) {
  bool ended = false;
  Deadline quiet = After(kQuiet);
  bool alive = true;
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<RunEvent> events, Next());
    for (const RunEvent& event : events) {
      if (!show(event)) {
        return Status::Ok();
      }
      ended = EndsJob(event);
    }
    if (!events.empty()) {
      quiet = After(kQuiet);
      alive = true;
    } else if (ended || !alive) {
      return Status::Ok();
    } else if (Now() >= quiet) {
      alive = is_alive_();  // If not, the log is read once more before the end.
      quiet = After(kQuiet);
    } else {
      // lint: allow sleep: another process writes the events, and no condition carries them.
      std::this_thread::sleep_until(After(kLookAgain));
    }
  }
}

}  // namespace heddle::elastic
