/// \file
/// The command line's way to the coordinator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// The calls of the command line; each is bounded by `timeout`. Thread: any.
/// Errors: kUnavailable (no coordinator there), kDeadlineExceeded, and the coordinator's own.
class CoordinatorClient {
 public:
  explicit CoordinatorClient(const std::string& coordinator,
                             Duration timeout = std::chrono::seconds(10));
  ~CoordinatorClient();

  /// Returns the job's id.
  Result<std::string> Submit(const std::string& yaml, const std::string& path);
  Result<wire::JobStatus> Status();
  /// `worker`: a name, or a host for all its workers. Returns the names.
  Result<std::vector<std::string>> Drain(const std::string& worker);
  struct EmulationChange {
    bool set_speed = false;
    bool set_memory = false;
    bool set_link = false;
    wire::Emulation emulation;
  };
  heddle::Status Emulate(const std::string& worker, const EmulationChange& change);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The status as one JSON object, with the names of the .proto; what `heddle status --json` prints.
std::string StatusToJson(const wire::JobStatus& status);

}  // namespace heddle::elastic
