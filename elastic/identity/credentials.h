/// \file
/// What a party of a control connection has in its folder: its key, its certificate, and the
/// authority's certificate that it knows others by.
#pragma once

#include <string>

#include "base/status.h"
#include "elastic/identity/identity.h"

namespace heddle::elastic {

inline constexpr const char* kKeyFile = "/key.pem";
inline constexpr const char* kCertificateFile = "/certificate.pem";
inline constexpr const char* kAuthorityFile = "/authority.pem";
/// A certificate is valid before it was made, for clocks that differ.
inline constexpr long kClockSkewSeconds = 300;
inline constexpr int64_t kMostCredentialBytes = 1 << 20;

/// In PEM. The key is a secret: it is never logged.
struct Credentials {
  std::string key;
  std::string certificate;
  std::string authority;
  Identity identity;   ///< What the certificate says.
  std::string folder;  ///< Where they were read; empty: in none.

  /// Without: the connection is neither encrypted nor authenticated.
  bool empty() const { return certificate.empty(); }
};

/// A file that nobody but its owner may read. Errors: kPermissionDenied (others may), as ReadFile.
Result<std::string> ReadSecret(const std::string& path);

/// Reads a folder that InitAuthority or IssueInto made; an empty name gives empty credentials.
/// Errors: kInvalidArgument naming the file (no PEM, the key is not the certificate's, the
/// certificate is not the authority's, or has expired), as ReadSecret.
Result<Credentials> ReadCredentials(const std::string& folder);

/// The folder of the worker `name` where `folder` is that of several: FOLDER/NAME when it is there,
/// else FOLDER.
std::string WorkerFolder(const std::string& folder, const std::string& name);

}  // namespace heddle::elastic
