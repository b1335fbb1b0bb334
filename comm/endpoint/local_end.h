/// \file
/// The properties of a worker's endpoint: its transports, its address and its identity.
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

/// A route's name for messages: "TRANSPORT over PORT", or the transport's name if its listener
/// `listener` has no port.
std::string RouteName(const Transport& transport, size_t listener);

/// The transports, address and identity of an endpoint. Thread: any.
class LocalEnd {
 public:
  /// The transport names in `config` have been checked.
  LocalEnd(Transports transports, const EndpointConfig& config);

  /// Implements Endpoint::Configure. Errors: kInvalidArgument (unknown or repeated transports);
  /// nothing is changed then.
  Status Configure(const EndpointConfig& config) HEDDLE_EXCLUDES(mutex_);
  Identity identity() const HEDDLE_EXCLUDES(mutex_);
  /// Names of the transports that the job allows, best first; not all of them need be open.
  std::vector<std::string> Allowed() const HEDDLE_EXCLUDES(mutex_);

  const std::vector<std::unique_ptr<Transport>>& transports() const { return transports_; }
  /// The open transport `name`; null: it is not open.
  const Transport* Find(const std::string& name) const;
  /// Why a transport that Find does not return is not open.
  const std::string& WhyAbsent(const std::string& name) const { return absent_.at(name); }
  const AddressParts& address() const { return address_; }

 private:
  const std::vector<std::unique_ptr<Transport>> transports_;
  const std::map<std::string, std::string> absent_;  ///< Reasons by transport name.
  const AddressParts address_;

  mutable Mutex mutex_;
  Identity identity_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::string> allowed_ HEDDLE_GUARDED_BY(mutex_);  ///< Empty: all transports.
};

}  // namespace heddle::comm
