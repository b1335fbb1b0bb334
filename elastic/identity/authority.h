/// \file
/// A lab's own certificate authority: a root key that signs a certificate for each party. Keys are
/// of the curve P-256; OpenSSL makes all keys and certificates.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/identity/identity.h"
#include "elastic/identity/party_folder.h"

namespace heddle::elastic {

inline constexpr int kAuthorityDays = 3650;
inline constexpr int kCertificateDays = 365;
inline constexpr int kMaxDays = 36500;
/// Default life of a certificate that is issued for a certificate request.
inline constexpr std::chrono::seconds kRequestedLife = std::chrono::hours(24);
/// Longest life of a certificate that is issued for a certificate request.
inline constexpr std::chrono::seconds kMaxRequestedLife = std::chrono::hours(24 * 400);

/// Makes a root key and its certificate, which is valid for `days`, 1 to kMaxDays. Errors:
/// kInvalidArgument (`days`).
Result<KeyAndCertificate> MakeAuthority(int days);

/// Makes a key for `identity` and its certificate, signed by `authority`: a server's certificate
/// for a coordinator, a client's for every other role. It is valid from kClockSkewSeconds ago,
/// since clocks differ. Errors: kInvalidArgument (the authority's PEM, `identity`, `days`).
Result<KeyAndCertificate> Issue(const KeyAndCertificate& authority,
                                const Identity& identity,
                                int days);

/// Makes a certificate in PEM for `identity` and the key of a certificate request (ReadRequest).
/// Ignores everything else in the request. Errors: kInvalidArgument (the authority's PEM,
/// `identity`, the request, `life`).
Result<std::string> IssueFor(const KeyAndCertificate& authority,
                             const Identity& identity,
                             const std::string& request_pem,
                             std::chrono::seconds life);

/// Reads the root's key and certificate from the folder `authority` that InitAuthority makes.
/// Errors: kInvalidArgument naming the file, those of ReadSecret.
Result<KeyAndCertificate> ReadAuthority(const std::string& folder);

/// Makes an authority and the certificates of all parties in the folder `folder`:
///
///   authority/      key.pem, certificate.pem: the root; it stays with the operator of the lab
///   coordinator/ operator/ viewer/ worker/NAME/
///                   key.pem, certificate.pem and authority.pem (the root's certificate): what a
///                   party needs, each folder to be copied to where that party runs
///
/// After an error nothing of it is there. Only their owner can enter the folders and read the keys.
/// `days`: how long the parties' certificates are valid; the root is valid for kAuthorityDays.
/// Errors: kAlreadyExists (the folder is not empty), kInvalidArgument (`days`; a name that is
/// invalid or there twice), those of the file system.
Status InitAuthority(const std::string& folder, const std::vector<std::string>& workers, int days);

/// Adds a party's folder to the folder of an authority that InitAuthority has made, and returns its
/// path. Errors: kAlreadyExists (the party's folder exists), kNotFound (no authority there), those
/// of Issue.
Result<std::string> IssueInto(const std::string& folder, const Identity& identity, int days);

}  // namespace heddle::elastic
