/// \file
/// What a worker's endpoint is, whoever asks: its transports, its address, who it is.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/transport/handshake.h"
#include "comm/transport/registry.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// "TRANSPORT over PORT", or the transport alone. `listener`: of the transport.
std::string RouteName(const Transport& transport, size_t listener);

/// Thread: any.
class LocalEnd {
 public:
  /// The names in `config` have been checked.
  LocalEnd(Transports transports, const EndpointConfig& config);

  /// Endpoint's. Errors: kInvalidArgument (no such transport), and nothing is changed.
  Status Configure(const EndpointConfig& config) HEDDLE_EXCLUDES(mutex_);
  Identity identity() const HEDDLE_EXCLUDES(mutex_);
  /// Names of the transports that may be used, best first; not all of them are here.
  std::vector<std::string> Allowed() const HEDDLE_EXCLUDES(mutex_);

  const std::vector<std::unique_ptr<Transport>>& transports() const { return transports_; }
  /// Null: not here.
  const Transport* Find(const std::string& name) const;
  /// Why a transport that Find lacks is not here.
  const std::string& WhyAbsent(const std::string& name) const { return absent_.at(name); }
  const AddressParts& address() const { return address_; }

 private:
  const std::vector<std::unique_ptr<Transport>> transports_;
  const std::map<std::string, std::string> absent_;  ///< Names and reasons.
  const AddressParts address_;

  mutable Mutex mutex_;
  Identity identity_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::string> allowed_ HEDDLE_GUARDED_BY(mutex_);  ///< Empty: all transports.
};

}  // namespace heddle::comm
