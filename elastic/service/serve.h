/// \file
/// `heddle serve`: the persistent coordinator. Its facts are a SQLite file, so that it may be
/// killed and started again while its workers train.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

struct ServeOptions {
  std::string store;                      ///< Folder of the coordinator's facts; made when missing.
  std::string listen = "127.0.0.1:4600";  ///< HOST:PORT for workers and the command line.
  std::string metrics_host = "127.0.0.1";
  int metrics_port = 0;
};

/// Serves until SIGTERM or SIGINT, and has ended two seconds later. Prints its addresses, and a
/// line for every event, on standard error. Errors: kInvalidArgument, kResourceExhausted (port
/// taken), kFailedPrecondition (the store is in use), kAborted (another coordinator has written to
/// it).
Status Serve(const ServeOptions& options);

}  // namespace heddle::elastic
