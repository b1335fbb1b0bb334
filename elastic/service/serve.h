/// \file
/// `heddle serve`: the persistent coordinator. Its facts are a SQLite file, so that it may be
/// killed and started again while its workers train, or are in etcd, so that another one on another
/// machine goes on.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/identity/authority.h"

namespace heddle::elastic {

struct ServeOptions {
  /// Folder of the coordinator's facts, made when missing; or etcd, as ParseEtcdAddress takes it.
  std::string store;
  std::string listen = "127.0.0.1:4600";  ///< HOST:PORT for workers and the command line.
  std::string certificates;               ///< Folder of the coordinator's certificate; empty: none.
  /// Folder of the authority's key and certificate: tokens admit workers, and workers renew their
  /// certificates. Empty: neither.
  std::string authority;
  std::chrono::seconds certificate_life = kRequestedLife;  ///< Of certificates of workers.
  bool insecure = false;                                   ///< Listen beyond loopback without one.
  /// Where jobs may write (OutputRoots); the first folder has those that name none. Empty:
  /// STORE/runs, and an error where the store is etcd.
  std::vector<std::string> output_roots;
  std::string metrics_host = "127.0.0.1";
  int metrics_port = 0;
};

/// Serves until SIGTERM or SIGINT, and has ended two seconds later. Prints its addresses, and a
/// line for every event, on standard error. With etcd it stands by while another one leads; a
/// leader whose lease ends stands by again, as a new run of the program that holds nothing of the
/// one before. Errors: kInvalidArgument (also: an address beyond loopback without certificates),
/// kPermissionDenied (a key that others may read), kResourceExhausted (port taken),
/// kFailedPrecondition (the store is in use), kAborted (another coordinator has written to it).
Status Serve(const ServeOptions& options);

}  // namespace heddle::elastic
