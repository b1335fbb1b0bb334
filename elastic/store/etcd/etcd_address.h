/// \file
/// The address of a coordinator's state in an etcd cluster, as `heddle serve --store` takes it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::elastic {

struct EtcdAddress {
  std::vector<std::string> endpoints;  ///< HOST:PORT of the cluster's members, or of some.
  std::string prefix;                  ///< Prefix of all keys, for example "/heddle/main".
  std::string ca_file;                 ///< PEM file of the authority. Any of the files set: TLS.
  std::string certificate_file;        ///< PEM file of the client's certificate.
  std::string key_file;                ///< PEM file of the client's key.
  /// How long a leader that does not renew its lease still leads.
  Duration lease = std::chrono::seconds(3);

  /// True if connections use TLS.
  bool tls() const { return !ca_file.empty() || !certificate_file.empty(); }
};

/// True if `text` is the address of a store in etcd, not the path of a folder.
bool IsEtcdAddress(const std::string& text);

/// Parses etcd://HOST:PORT[,HOST:PORT…]/PREFIX[?ca=FILE&cert=FILE&key=FILE&lease=SECONDS]. `cert`
/// and `key` go together; `lease` is from 2 to 60. Errors: kInvalidArgument.
Result<EtcdAddress> ParseEtcdAddress(const std::string& text);

}  // namespace heddle::elastic
