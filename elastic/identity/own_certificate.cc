#include "elastic/identity/own_certificate.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <sys/stat.h>

#include "elastic/identity/openssl.h"

namespace heddle::elastic {
namespace {

Result<double> SecondsOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return OpenSslError(StatusCode::kInvalidArgument, "a certificate's time");
  }
  return static_cast<double>(::timegm(&parts));
}

// Text that changes when one of the files is replaced or written.
std::string Marks(const std::string& folder) {
  std::string marks;
  for (const char* file : {kKeyFile, kCertificateFile, kAuthorityFile}) {
    struct stat facts {};
    if (::stat((folder + file).c_str(), &facts) != 0) {
      marks += "-;";
      continue;
    }
    marks += fmt::format("{} {} {} {}.{};", facts.st_dev, facts.st_ino, facts.st_size,
                         facts.st_ctim.tv_sec, facts.st_ctim.tv_nsec);
  }
  return marks;
}

}  // namespace

Result<CertificateLife> LifeOf(const std::string& certificate_pem) {
  HEDDLE_ASSIGN_OR_RETURN(const CertificatePtr certificate, ReadCertificate(certificate_pem));
  HEDDLE_ASSIGN_OR_RETURN(const double from, SecondsOf(X509_get0_notBefore(certificate.get())));
  HEDDLE_ASSIGN_OR_RETURN(const double until, SecondsOf(X509_get0_notAfter(certificate.get())));
  const double ahead = std::min<double>(kClockSkewSeconds, (until - from) / 2);
  return CertificateLife{.begins = from + ahead, .ends = until};
}

std::string UtcText(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

OwnCertificate::OwnCertificate(Credentials current, CertificateLife life)
    : current_(std::move(current)),
      life_(life),
      seen_(Marks(current_.folder)) {}

Result<std::unique_ptr<OwnCertificate>> OwnCertificate::Make(Credentials current) {
  HEDDLE_ASSIGN_OR_RETURN(const CertificateLife life, LifeOf(current.certificate));
  return std::unique_ptr<OwnCertificate>(new OwnCertificate(std::move(current), life));
}

Credentials OwnCertificate::current() const {
  const MutexLock lock(mutex_);
  return current_;
}
CertificateLife OwnCertificate::life() const {
  const MutexLock lock(mutex_);
  return life_;
}
int64_t OwnCertificate::version() const {
  const MutexLock lock(mutex_);
  return version_;
}

Result<bool> OwnCertificate::Look() {
  const Credentials before = current();
  if (before.folder.empty()) {
    return false;
  }
  // Taken before the files are read, so that the next Look sees what changes meanwhile.
  const std::string marks = Marks(before.folder);
  {
    const MutexLock lock(mutex_);
    if (marks == seen_) {
      return false;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(Credentials read, ReadCredentials(before.folder));
  if (read.identity != before.identity) {
    return InvalidArgumentError("{}: a certificate of {} in the place of one of {}", before.folder,
                                IdentityText(read.identity), IdentityText(before.identity));
  }
  if (read.authority != before.authority) {
    return InvalidArgumentError("{}: another authority: that takes a new start", before.folder);
  }
  HEDDLE_ASSIGN_OR_RETURN(const CertificateLife life, LifeOf(read.certificate));
  const bool another = read.certificate != before.certificate;
  const MutexLock lock(mutex_);
  seen_ = marks;
  current_ = std::move(read);
  life_ = life;
  version_ += another ? 1 : 0;
  return another;
}

}  // namespace heddle::elastic
