/// \file
/// Where a command line finds the events of a job: in the folder of its run, or with its
/// coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "elastic/identity/credentials.h"
#include "elastic/report/run_events.h"

namespace heddle::elastic {

/// Thread: one caller at a time.
class EventSource {
 public:
  /// `job`: the beginning of the job's hash; empty: whatever job it is. `credentials`: whoever
  /// follows asks the run's coordinator now and then whether it is there, as this party; without
  /// credentials, a coordinator that asks for some is only connected to.
  /// Errors: kNotFound (no run is there), kInvalidArgument (it is another job's).
  static Result<EventSource> OfFolder(const std::string& folder,
                                      const std::string& job,
                                      const Credentials& credentials = {});
  /// Errors: those of CoordinatorClient; kInvalidArgument (it runs another job).
  static Result<EventSource> OfCoordinator(const std::string& address,
                                           const Credentials& credentials,
                                           const std::string& job);

  /// Events that were not returned before; empty: there are none now. What is no event is left out.
  Result<std::vector<RunEvent>> Next();
  /// Calls `show` for each event that is there, until it returns false. Errors: those of Next.
  Status ReadAll(const std::function<bool(const RunEvent&)>& show);
  /// The same, and those that are still to come, until the job has ended or nobody works on it any
  /// more.
  Status Follow(const std::function<bool(const RunEvent&)>& show);
  /// How many lines were left out.
  int64_t left_out() const { return left_out_; }

 private:
  EventSource(EventReader::ReadBytes read, std::function<bool()> is_alive)
      : reader_(std::move(read)),
        is_alive_(std::move(is_alive)) {}

  EventReader reader_;
  std::function<bool()> is_alive_;  ///< Whether somebody may still write events.
  int64_t left_out_ = 0;
};

}  // namespace heddle::elastic
