#include "cli/coordinator/coordinator_arguments.h"

#include "cli/output.h"
#include "elastic/identity/credentials.h"

namespace heddle::cli {

void CoordinatorArguments::Declare(Arguments& arguments, const std::string& run) {
  arguments.Option("coordinator", &coordinator_,
                   "HOST:PORT, or those of all that may lead: HOST:PORT,HOST:PORT");
  arguments.Option("run", &run_, run);
  arguments.Option("certs", &certificates_,
                   "Folder of the certificate to show; needed where the coordinator has one");
}

Result<std::unique_ptr<elastic::CoordinatorClient>> CoordinatorArguments::Connect() {
  HEDDLE_ASSIGN_OR_RETURN(address_, FindCoordinator(coordinator_, run_));
  const auto credentials = elastic::ReadCredentials(certificates_);
  HEDDLE_RETURN_IF_ERROR(credentials.status().WithContext("--certs"));
  authority_ = credentials->authority;
  return std::make_unique<elastic::CoordinatorClient>(address_, *credentials);
}

}  // namespace heddle::cli
