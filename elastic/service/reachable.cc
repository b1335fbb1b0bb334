#include "elastic/service/reachable.h"

#include <fmt/format.h>

#include "base/system/socket_address.h"

namespace heddle::elastic {

std::string ReachableAddress(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  const std::string host = listen.substr(0, colon);
  const bool four = host == "0.0.0.0";
  if (!four && host != "::" && host != "[::]") {
    return listen;
  }
  // Addresses reserved for documentation (RFC 5737, RFC 3849): any foreign address would do.
  for (const char* const elsewhere : {"192.0.2.1:9", "[2001:db8::1]:9"}) {
    const auto own = OwnAddressTowards(*ParseSocketAddress(elsewhere));
    const std::string found = own.ok() ? HostOf(*own) : "";
    const bool six = found.find(':') != std::string::npos;
    if (!found.empty() && !(four && six) && !found.starts_with("fe80:")) {
      return (six ? "[" + found + "]" : found) + listen.substr(colon);
    }
  }
  return (four ? "127.0.0.1" : "[::1]") + listen.substr(colon);
}

std::string AddressLine(const std::string& coordinator, const std::string& metrics) {
  return fmt::format("coordinator {}, metrics and status page http://{}/",
                     ReachableAddress(coordinator), ReachableAddress(metrics));
}

}  // namespace heddle::elastic
