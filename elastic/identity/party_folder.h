/// \file
/// The folder of a party, made or replaced whole.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

/// A private key and its certificate, in PEM. The key is a secret.
struct KeyAndCertificate {
  std::string key;
  std::string certificate;
};

/// A folder that its owner alone may enter. Errors: those of the system, also that it is there.
Status MakePrivateFolder(const std::string& path);

/// Makes the folder with key.pem, certificate.pem and, unless `root` is empty, authority.pem;
/// durable on return. Errors: as MakePrivateFolder.
Status WriteParty(const std::string& folder,
                  const KeyAndCertificate& party,
                  const std::string& root);

/// Puts a party's folder in the place of the one that is there, if any: whoever opens its files
/// sees all of the one or all of the other, but for who opens one before and one after. Its parents
/// are made. Errors: those of the system; then what was there is there.
Status ReplaceParty(const std::string& folder,
                    const KeyAndCertificate& party,
                    const std::string& root);

/// A folder that is made beside its place and moved there whole, or leaves nothing.
class DraftFolder {
 public:
  explicit DraftFolder(std::string place);
  ~DraftFolder();
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Onto nothing or an empty folder; never onto what holds something. Errors: kAlreadyExists.
  Status Publish() const;
  /// Onto whatever folder is there, which goes. Errors: those of the system.
  Status Replace() const;

 private:
  const std::string place_;
  const std::string path_;
};

}  // namespace heddle::elastic
