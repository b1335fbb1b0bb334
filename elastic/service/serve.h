/// \file
/// `heddle serve`: the persistent coordinator. Its durable state is in a SQLite file, so that it
/// can be killed and started again while its workers train, or in etcd, so that a coordinator on
/// another machine can take over.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/identity/authority.h"

namespace heddle::elastic {

struct ServeOptions {
  /// Folder of the coordinator's state, made if missing; or an etcd address (ParseEtcdAddress).
  std::string store;
  std::string listen = "127.0.0.1:4600";  ///< HOST:PORT for workers and the command line.
  std::string certificates;               ///< Folder of the coordinator's certificate; empty: none.
  /// Folder of the authority's key and certificate, with which the coordinator issues certificates
  /// for join tokens and renewals. Empty: it issues none.
  std::string authority;
  std::chrono::seconds certificate_life = kRequestedLife;  ///< Life of workers' certificates.
  bool insecure = false;  ///< Allows to listen beyond loopback without a certificate.
  /// Where jobs may write (OutputRoots). The first folder is the default for jobs that name no
  /// output. Empty: STORE/runs, or an error if the store is etcd.
  std::vector<std::string> output_roots;
  std::string metrics_host = "127.0.0.1";
  int metrics_port = 0;  ///< 0: any free one.
};

/// Serves until SIGTERM or SIGINT, and ends within two seconds of it. Prints its addresses and its
/// progress on standard error. With etcd it is a standby while another coordinator leads. A leader
/// whose lease ends becomes a standby again by executing the program anew, so that no state is
/// left. Errors: kInvalidArgument (options; an address beyond loopback without certificates),
/// kPermissionDenied (a key that others may read), kResourceExhausted (port taken),
/// kFailedPrecondition (the store is in use), kAborted (another coordinator has written to it).
Status Serve(const ServeOptions& options);

}  // namespace heddle::elastic
