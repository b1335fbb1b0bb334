#include "comm/endpoint/local_end.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace heddle::comm {

namespace {

AddressParts AddressOf(const std::vector<std::unique_ptr<Transport>>& transports) {
  AddressParts address;
  address["host"] = HostIdentity();
  for (const auto& transport : transports) {
    address[transport->name()] = transport->address();
  }
  return address;
}

}  // namespace

std::string RouteName(const Transport& transport, size_t listener) {
  const std::string port = transport.listeners()[listener].port;
  return port.empty() ? transport.name() : fmt::format("{} over {}", transport.name(), port);
}

LocalEnd::LocalEnd(Transports transports, const EndpointConfig& config)
    : transports_(std::move(transports.open)),
      absent_(std::move(transports.absent)),
      address_(AddressOf(transports_)) {
  const Status configured = Configure(config);
  HEDDLE_CHECK(configured.ok(), "Create has checked the names: {}", configured.message());
}

Status LocalEnd::Configure(const EndpointConfig& config) {
  HEDDLE_RETURN_IF_ERROR(CheckTransportNames(config.transports));
  {
    const MutexLock lock(mutex_);
    identity_ = {.job = Sha256(config.job), .secret = config.secret, .tls = config.tls};
    allowed_ = config.transports;
  }
  static std::atomic<bool> said = false;
  for (const auto& transport : transports_) {
    if (config.tls && !transport->traits().encrypts && !said.exchange(true)) {
      LogInfo("{} is not used: comm.tls is on, and it is not encrypted", transport->name());
    }
  }
  return Status::Ok();
}

Identity LocalEnd::identity() const {
  const MutexLock lock(mutex_);
  return identity_;
}

std::vector<std::string> LocalEnd::Allowed() const {
  const MutexLock lock(mutex_);
  return allowed_.empty() ? TransportNames() : allowed_;
}

const Transport* LocalEnd::Find(const std::string& name) const {
  const auto found = std::find_if(transports_.begin(), transports_.end(),
                                  [&](const auto& other) { return other->name() == name; });
  return found == transports_.end() ? nullptr : found->get();
}

}  // namespace heddle::comm
