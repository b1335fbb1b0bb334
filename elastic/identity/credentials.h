/// \file
/// The credentials of a party of a control connection, as its folder has them: its key, its
/// certificate, and the authority's certificate that it verifies others by.
#pragma once

#include <string>

#include "base/status.h"
#include "elastic/identity/identity.h"

namespace heddle::elastic {

inline constexpr const char* kKeyFile = "/key.pem";
inline constexpr const char* kCertificateFile = "/certificate.pem";
inline constexpr const char* kAuthorityFile = "/authority.pem";
/// How long before it was made a certificate is valid, since clocks differ.
inline constexpr long kClockSkewSeconds = 300;
inline constexpr int64_t kMaxCredentialBytes = 1 << 20;

/// A party's credentials, in PEM. The key is a secret and never logged.
struct Credentials {
  std::string key;
  std::string certificate;
  std::string authority;
  Identity identity;   ///< The identity in the certificate.
  std::string folder;  ///< The folder that they were read from; empty: none.

  /// True if there is no certificate: connections are neither encrypted nor authenticated.
  bool empty() const { return certificate.empty(); }
};

/// Reads a file that only its owner may have access to. Errors: kPermissionDenied (others have
/// access), those of ReadFile.
Result<std::string> ReadSecret(const std::string& path);

/// Reads the credentials in a folder that InitAuthority or IssueInto has made; an empty name gives
/// empty credentials. Errors: kInvalidArgument naming the file (no PEM, the key is not the
/// certificate's, the certificate is not the authority's, or has expired), those of ReadSecret.
Result<Credentials> ReadCredentials(const std::string& folder);

/// The folder of the worker `name`'s credentials, if `folder` may hold the folders of several
/// workers: FOLDER/NAME if that has a certificate, otherwise FOLDER.
std::string WorkerFolder(const std::string& folder, const std::string& name);

}  // namespace heddle::elastic
