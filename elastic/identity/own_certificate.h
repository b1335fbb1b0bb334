/// \file
/// A party's certificate while it is used: how long it lives, when it is renewed, and that another
/// one has been put into its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "elastic/identity/credentials.h"

namespace heddle::elastic {

/// In seconds since the epoch.
struct CertificateLife {
  double begins = 0;  ///< Without the minutes before it that are for clocks which differ.
  double ends = 0;

  /// From half of its life on.
  double RenewedFrom() const { return begins + (ends - begins) / 2; }
  /// From the last fifth of its life on somebody is to be told.
  double WarnedFrom() const { return ends - (ends - begins) / 5; }
};

/// Errors: kInvalidArgument (no certificate in PEM).
Result<CertificateLife> LifeOf(const std::string& certificate_pem);

/// "2026-11-25 14:00:00 UTC" of seconds since the epoch.
std::string UtcText(double seconds);

/// The credentials of a folder, read again when the folder changes. Thread: any.
class OwnCertificate {
 public:
  /// `current`: what ReadCredentials has read, not empty. One that is of no folder never changes.
  static Result<std::unique_ptr<OwnCertificate>> Make(Credentials current);

  Credentials current() const HEDDLE_EXCLUDES(mutex_);
  CertificateLife life() const HEDDLE_EXCLUDES(mutex_);
  /// Counted from 1; another one for each that was taken.
  int64_t version() const HEDDLE_EXCLUDES(mutex_);

  /// Looks into the folder; whether it has other credentials, which are the current ones from now
  /// on. Errors: what is there now cannot be taken, because it does not read, is another party's or
  /// of another authority; what was there before stays current.
  Result<bool> Look() HEDDLE_EXCLUDES(mutex_);

 private:
  OwnCertificate(Credentials current, CertificateLife life);

  mutable Mutex mutex_;
  Credentials current_ HEDDLE_GUARDED_BY(mutex_);
  CertificateLife life_ HEDDLE_GUARDED_BY(mutex_);
  int64_t version_ HEDDLE_GUARDED_BY(mutex_) = 1;
  std::string seen_ HEDDLE_GUARDED_BY(mutex_);  ///< Of the files that current_ was read from.
};

}  // namespace heddle::elastic
