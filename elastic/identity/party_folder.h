/// \file
/// The folder of a party's credentials, which is made or replaced as a whole.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

/// A private key and its certificate, in PEM. The key is a secret.
struct KeyAndCertificate {
  std::string key;
  std::string certificate;
};

/// Makes a folder that only its owner may enter. Errors: those of the system, also if it exists.
Status MakePrivateFolder(const std::string& path);

/// Makes the folder with key.pem, certificate.pem and, unless `root` is empty, authority.pem. They
/// are durable on return. Errors: those of MakePrivateFolder.
Status WriteParty(const std::string& folder,
                  const KeyAndCertificate& party,
                  const std::string& root);

/// Makes a party's folder and its parents, or replaces it atomically. A reader that opens its files
/// during the replacement may get files of both. After an error the old folder is there. Errors:
/// those of the system.
Status ReplaceParty(const std::string& folder,
                    const KeyAndCertificate& party,
                    const std::string& root);

/// The path of a folder that is made beside its place and then moved there as a whole.
class DraftFolder {
 public:
  /// Makes nothing; the caller makes the folder at path().
  explicit DraftFolder(std::string place);
  /// Removes the folder at path(), if it is there.
  ~DraftFolder();
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Moves the folder to its place, which must be free or an empty folder. Errors: kAlreadyExists,
  /// those of the system.
  Status Publish() const;
  /// Exchanges the folder with the one at its place, which the destructor removes. Errors: those of
  /// the system.
  Status Replace() const;

 private:
  const std::string place_;
  const std::string path_;
};

}  // namespace heddle::elastic
