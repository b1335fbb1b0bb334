/// \file
/// What a coordinator answers while another one leads: who that is.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/credentials.h"

namespace heddle::elastic {

/// Refuses workers and changes with the leader's address, and says in its status that it stands by.
/// Who may not make a call of the coordinator that leads is told so here, and nothing else.
/// Thread: any.
class StandbyServer {
 public:
  /// Listens on HOST:PORT; port 0: any free one. `credentials`: as CoordinatorServerOptions has
  /// them. Errors: those of listening that CoordinatorServer::Start has.
  static Result<std::unique_ptr<StandbyServer>> Start(const std::string& listen,
                                                      const Credentials& credentials = {});
  /// Ends its connections: whoever had one comes again.
  ~StandbyServer();

  const std::string& address() const;
  /// `leader`: HOST:PORT; empty: unknown. `reason`: what it stands by for, a phrase that follows
  /// "this coordinator stands by: ".
  void Set(const std::string& leader, const std::string& reason);

 private:
  class Impl;
  explicit StandbyServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
