/// \file
/// How the subcommands that call a coordinator find it, and show who they are.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cli/command.h"
#include "elastic/grpc/client.h"

namespace heddle::cli {

class CoordinatorArguments {
 public:
  /// Declares --coordinator, --run and --certs. `run`: what stands beside the second.
  void Declare(Arguments& arguments, const std::string& run);
  /// Errors: FindCoordinator's, those of reading the certificate.
  Result<std::unique_ptr<elastic::CoordinatorClient>> Connect();
  /// Of the coordinator, once it was found.
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

inline constexpr const char* kRunOfNewest = "Folder of the run [the newest under ./runs]";

}  // namespace heddle::cli
