/// \file
/// Reads the events of a job for a command line, from the folder of its run or from its
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

/// The events of one job, read in order. Thread: one caller at a time.
class EventSource {
 public:
  /// Reads the log in a run's folder. `job`: the beginning of the job's hash; empty: any job.
  /// `credentials`: for Follow, which asks the run's coordinator now and then whether it runs;
  /// without them it only connects to a coordinator that requires a certificate.
  /// Errors: kNotFound (no run is there), kInvalidArgument (it is another job's).
  static Result<EventSource> OfFolder(const std::string& folder,
                                      const std::string& job,
                                      const Credentials& credentials = {});
  /// Reads the log of the coordinator's job. `job` as for OfFolder. Errors: those of
  /// CoordinatorClient; kInvalidArgument (it runs another job).
  static Result<EventSource> OfCoordinator(const std::string& address,
                                           const Credentials& credentials,
                                           const std::string& job);

  /// Returns events that were not returned before; empty if there are none now. Lines that are not
  /// events are left out. Errors: those of reading; from a coordinator also kInvalidArgument (it
  /// runs another job by now).
  Result<std::vector<RunEvent>> Next();
  /// Calls `show` for each event that is there now, until it returns false. Errors: those of Next.
  Status ReadAll(const std::function<bool(const RunEvent&)>& show);
  /// Calls `show` for each event, present and future, until it returns false, the job has ended, or
  /// the run's coordinator is gone. Errors: those of Next.
  Status Follow(const std::function<bool(const RunEvent&)>& show);
  /// Number of lines that were left out so far.
  int64_t left_out() const { return left_out_; }

 private:
  EventSource(EventReader::ReadBytes read, std::function<bool()> is_alive)
      : reader_(std::move(read)),
        is_alive_(std::move(is_alive)) {}

  EventReader reader_;
  std::function<bool()> is_alive_;  ///< False if the run's coordinator does not answer.
  int64_t left_out_ = 0;
};

}  // namespace heddle::elastic
