#include "cli/coordinator/event_arguments.h"

#include <fmt/format.h>

#include "cli/output.h"
#include "elastic/identity/credentials.h"

namespace heddle::cli {

void EventArguments::Declare(Arguments& arguments) {
  arguments.Option("coordinator", &coordinator_, "HOST:PORT: ask it, not the run's folder");
  arguments.Option("run", &run_, "Folder of the run [the newest under ./runs]");
  arguments.Option("certs", &certificates_,
                   "Folder of the certificate to show; needed with --coordinator where the "
                   "coordinator has one");
  arguments.Option("job", &job_, "Hash of the job, or its beginning: refuse another job's events");
}

Result<elastic::EventSource> EventArguments::Open() const {
  const auto credentials = elastic::ReadCredentials(certificates_);
  HEDDLE_RETURN_IF_ERROR(credentials.status().WithContext("--certs"));
  if (!coordinator_.empty()) {
    return elastic::EventSource::OfCoordinator(coordinator_, *credentials, job_);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string run, FindRun(run_));
  return elastic::EventSource::OfFolder(run, job_, *credentials);
}

int EventArguments::ReportError(const Status& status) const {
  return coordinator_.empty() ? Report(status) : ReportCall(status, coordinator_);
}

int EventArguments::End(const elastic::EventSource& source, const Status& status) const {
  if (source.left_out() > 0) {
    PrintNote(fmt::format("{} lines are no events and were left out", source.left_out()));
  }
  return status.ok() ? kDone : ReportError(status);
}

}  // namespace heddle::cli
