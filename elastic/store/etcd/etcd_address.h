/// \file
/// Where in which etcd cluster a coordinator's state is: what `heddle serve --store` says.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::elastic {

struct EtcdAddress {
  std::vector<std::string> endpoints;  ///< HOST:PORT of the cluster's members, or of some.
  std::string prefix;                  ///< Of all keys: "/heddle/main".
  std::string ca_file;                 ///< PEM; any of the three files set: TLS.
  std::string certificate_file;
  std::string key_file;
  /// How long a leader that is not heard stays one.
  Duration lease = std::chrono::seconds(3);

  bool tls() const { return !ca_file.empty() || !certificate_file.empty(); }
};

/// Whether a store is one in etcd, and not a folder.
bool IsEtcdAddress(const std::string& text);

/// etcd://HOST:PORT[,HOST:PORT…]/PREFIX[?ca=FILE&cert=FILE&key=FILE&lease=SECONDS]. `cert` and
/// `key` go together; `lease` is from 2 to 60. Errors: kInvalidArgument.
Result<EtcdAddress> ParseEtcdAddress(const std::string& text);

}  // namespace heddle::elastic
