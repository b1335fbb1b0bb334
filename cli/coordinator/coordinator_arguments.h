/// \file
/// The options by which subcommands find the coordinator that they call, and their certificate.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cli/command.h"
#include "elastic/grpc/client.h"

namespace heddle::cli {

/// The options of one subcommand. Thread: one caller at a time.
class CoordinatorArguments {
 public:
  /// Declares --coordinator, --run and --certs. `run`: the help of --run.
  void Declare(Arguments& arguments, const std::string& run);
  /// Makes a client of the coordinator that the options name; connects at its first call. Errors:
  /// those of FindCoordinator and of reading the certificate.
  Result<std::unique_ptr<elastic::CoordinatorClient>> Connect();
  /// The coordinator's address, once Connect has found it.
  const std::string& address() const { return address_; }
  /// The lab's authority in PEM, once Connect has read the certificate; empty without one.
  const std::string& authority() const { return authority_; }

 private:
  std::string coordinator_;
  std::string run_;
  std::string certificates_;
  std::string address_;
  std::string authority_;
};

/// The help of --run for subcommands that take the newest run by default.
inline constexpr const char* kRunOfNewest = "Folder of the run [the newest under ./runs]";

}  // namespace heddle::cli
