/// \file
/// A lab's own certificate authority: a root key that signs a certificate for each party. Keys are
/// of the curve P-256; everything is made by OpenSSL.
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
inline constexpr int kMostDays = 36500;
/// Of a certificate for somebody else's key.
inline constexpr std::chrono::seconds kRequestedLife = std::chrono::hours(24);
inline constexpr std::chrono::seconds kMostRequestedLife = std::chrono::hours(24 * 400);

/// A new root. `days`: how long it is valid, 1 to kMostDays.
Result<KeyAndCertificate> MakeAuthority(int days);

/// A new key for `identity` and its certificate, signed by `authority`: for a coordinator one of a
/// server, for everybody else one of a client. Valid from a few minutes ago, for clocks that
/// differ. Errors: kInvalidArgument (the authority's PEM, `days`).
Result<KeyAndCertificate> Issue(const KeyAndCertificate& authority,
                                const Identity& identity,
                                int days);

/// The certificate for the key of a request (ReadRequest), whose holder has signed it; what else
/// the request says is not looked at. Errors: kInvalidArgument (the authority's PEM, the request,
/// `life`).
Result<std::string> IssueFor(const KeyAndCertificate& authority,
                             const Identity& identity,
                             const std::string& request_pem,
                             std::chrono::seconds life);

/// Reads the folder `authority` of those that InitAuthority makes. Errors: kInvalidArgument naming
/// the file, as ReadSecret.
Result<KeyAndCertificate> ReadAuthority(const std::string& folder);

/// Makes the folder `folder`:
///
///   authority/      key.pem, certificate.pem: the root; it stays with whoever runs the lab
///   coordinator/ operator/ viewer/ worker/NAME/
///                   key.pem, certificate.pem and authority.pem (the root's certificate): what a
///                   party needs, each folder to be copied to where that party runs
///
/// all of it or nothing. Folders can be entered, and keys be read, by their owner only.
/// Errors: kAlreadyExists (the folder is there and not empty), kInvalidArgument (a name, twice the
/// same), those of the file system.
Status InitAuthority(const std::string& folder, const std::vector<std::string>& workers, int days);

/// Adds a party's folder to one that InitAuthority has made; its path. Errors: kAlreadyExists (it
/// is there), kNotFound (no authority there), as Issue.
Result<std::string> IssueInto(const std::string& folder, const Identity& identity, int days);

}  // namespace heddle::elastic
