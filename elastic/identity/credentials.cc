#include "elastic/identity/credentials.h"

#include <cerrno>

#include <sys/stat.h>

#include "base/system/file.h"
#include "elastic/identity/openssl.h"
#include "elastic/identity/verifier.h"

namespace heddle::elastic {

Result<std::string> ReadSecret(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return ErrnoError(errno, "open " + path);
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return PermissionDeniedError("{}: others may read this key (mode {:o}): chmod 600 {}", path,
                                 facts.st_mode & 07777, path);
  }
  return ReadFile(path, kMaxCredentialBytes);
}

Result<Credentials> ReadCredentials(const std::string& folder) {
  Credentials read;
  if (folder.empty()) {
    return read;
  }
  const auto in = [&](const Status& status, const char* file) {
    return status.WithContext("{}{}", folder, file);
  };
  HEDDLE_ASSIGN_OR_RETURN(read.key, ReadSecret(folder + kKeyFile));
  HEDDLE_ASSIGN_OR_RETURN(read.certificate,
                          ReadFile(folder + kCertificateFile, kMaxCredentialBytes));
  HEDDLE_ASSIGN_OR_RETURN(read.authority, ReadFile(folder + kAuthorityFile, kMaxCredentialBytes));
  const Result<KeyPtr> key = ReadKey(read.key);
  HEDDLE_RETURN_IF_ERROR(in(key.status(), kKeyFile));
  const Result<CertificatePtr> certificate = ReadCertificate(read.certificate);
  HEDDLE_RETURN_IF_ERROR(in(certificate.status(), kCertificateFile));
  const auto verifier = PeerVerifier::Make(read.authority);
  HEDDLE_RETURN_IF_ERROR(in(verifier.status(), kAuthorityFile));
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return OpenSslError(StatusCode::kInvalidArgument,
                        folder + kKeyFile + " is not the key of certificate.pem");
  }
  const PeerVerdict verdict = (*verifier)->Verify(read.certificate);
  if (!verdict.status.ok()) {
    return InvalidArgumentError("{}{}: {}", folder, kCertificateFile, verdict.status.message());
  }
  read.identity = verdict.identity;
  read.folder = folder;
  return read;
}

std::string WorkerFolder(const std::string& folder, const std::string& name) {
  const std::string own = folder + "/" + name;
  return folder.empty() || name.empty() || !FileExists(own + kCertificateFile) ? folder : own;
}

}  // namespace heddle::elastic
