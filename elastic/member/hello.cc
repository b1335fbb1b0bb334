#include "elastic/member/hello.h"

#include "elastic/protocol/version.h"

namespace heddle::elastic {

wire::Hello HelloOf(const MemberIdentity& identity) {
  wire::Hello hello;
  hello.set_name(identity.name);
  hello.set_incarnation(identity.incarnation);
  hello.set_host(identity.host);
  hello.set_pid(identity.pid);
  hello.set_data_address(identity.data_address);
  hello.set_metrics_address(identity.metrics_address);
  hello.set_network(identity.network);
  hello.set_probe_address(identity.probe_address);
  hello.set_failure_domain(identity.failure_domain);
  hello.set_protocol_version(kProtocolVersion);
  *hello.mutable_emulation() = identity.emulation;
  hello.mutable_arithmetic()->insert(identity.arithmetic.begin(), identity.arithmetic.end());
  hello.set_device_of_job(identity.device_of_job);
  return hello;
}

}  // namespace heddle::elastic
