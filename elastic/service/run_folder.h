/// \file
/// What a run leaves in its output folder for people and scripts: events.jsonl, appended and
/// flushed line by line, and job.json, replaced atomically whenever a worker comes or goes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "elastic/control/actions.h"

namespace heddle::elastic {

/// Thread: one caller at a time.
class RunFolder {
 public:
  /// Makes the folder; an existing events.jsonl is appended to, after the part of a line that a
  /// crash has left at its end was removed.
  static Result<std::unique_ptr<RunFolder>> Open(const std::string& path);

  /// Addresses that job.json names: HOST:PORT of the coordinator and of its metrics.
  void SetAddresses(const std::string& coordinator, const std::string& metrics);

  /// On an error the file holds none of the event.
  Status Append(const LogEvent& event);
  /// What was appended outlives the machine's end.
  Status Sync();
  /// {"coordinator", "metrics", "workers": [{"name", "pid"}, …]}
  Status WriteJobFile(const std::vector<ListWorkers::Entry>& workers);

  const std::string& path() const { return path_; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string coordinator_;
  std::string metrics_;
  UniqueFd events_;
};

}  // namespace heddle::elastic
