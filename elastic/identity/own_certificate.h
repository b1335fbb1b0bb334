/// \file
/// A party's certificate in use: when it ends, when it is to be renewed, and whether it was
/// replaced in its folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "elastic/identity/credentials.h"

namespace heddle::elastic {

/// When a certificate is valid, in seconds since the epoch.
struct CertificateLife {
  double begins = 0;  ///< When it was made; it is valid kClockSkewSeconds earlier.
  double ends = 0;

  /// When it is to be renewed: after half of its life.
  double RenewedFrom() const { return begins + (ends - begins) / 2; }
  /// When to warn of its end: in the last fifth of its life.
  double WarnedFrom() const { return ends - (ends - begins) / 5; }
};

/// Reads the times of a certificate. Errors: kInvalidArgument (no certificate in PEM).
Result<CertificateLife> LifeOf(const std::string& certificate_pem);

/// Formats seconds since the epoch: "2026-11-25 14:00:00 UTC".
std::string UtcText(double seconds);

/// The credentials of a folder, read again when the folder changes. Thread: any.
class OwnCertificate {
 public:
  /// `current`: credentials from ReadCredentials, not empty. Without a folder they never change.
  /// Errors: kInvalidArgument (no certificate in PEM).
  static Result<std::unique_ptr<OwnCertificate>> Make(Credentials current);

  Credentials current() const HEDDLE_EXCLUDES(mutex_);
  CertificateLife life() const HEDDLE_EXCLUDES(mutex_);
  /// The number of the current certificate, from 1; it rises with each replacement.
  int64_t version() const HEDDLE_EXCLUDES(mutex_);

  /// Reads the folder if its files have changed. True if it has another certificate, which is the
  /// current one from now on. After an error the old one stays current. Errors: kInvalidArgument
  /// (the credentials are another party's or of another authority), those of ReadCredentials.
  Result<bool> Look() HEDDLE_EXCLUDES(mutex_);

 private:
  OwnCertificate(Credentials current, CertificateLife life);

  mutable Mutex mutex_;
  Credentials current_ HEDDLE_GUARDED_BY(mutex_);
  CertificateLife life_ HEDDLE_GUARDED_BY(mutex_);
  int64_t version_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::string seen_ HEDDLE_GUARDED_BY(mutex_);  ///< Marks of the files that current_ was read from.
};

}  // namespace heddle::elastic
