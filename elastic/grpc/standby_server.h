/// \file
/// The server of a standby: a coordinator while another one leads.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "elastic/identity/credentials.h"

namespace heddle::elastic {

/// Refuses workers and all calls but Status with the leader's address; its status is "standby".
/// Calls are authorised as the leader does it, so that only clients that may call the leader get
/// its address. Thread: any.
class StandbyServer {
 public:
  /// Listens on HOST:PORT; port 0: any free one. `credentials`: as in CoordinatorServerOptions.
  /// Errors: those of ControlPort::Open and ControlPort::Serve.
  static Result<std::unique_ptr<StandbyServer>> Start(const std::string& listen,
                                                      const Credentials& credentials = {});
  /// Ends all connections; their clients connect again.
  ~StandbyServer();

  /// HOST:PORT to connect to.
  const std::string& address() const;
  /// Sets what is answered from now on. `leader`: HOST:PORT of the leader; empty: unknown.
  /// `reason`: why this coordinator does not lead, to follow "this coordinator stands by: ".
  void Set(const std::string& leader, const std::string& reason);

 private:
  class Impl;
  explicit StandbyServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
