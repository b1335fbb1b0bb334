#include "elastic/identity/party_folder.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "elastic/identity/credentials.h"

namespace heddle::elastic {
namespace {

// Creates a file, which has the rights of `mode` from the start.
Status CreateFile(const std::string& path, const std::string& content, mode_t mode) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid()) {
    return ErrnoError(errno, "create " + path);
  }
  const ssize_t written = ::write(fd.get(), content.data(), content.size());
  if (written != static_cast<ssize_t>(content.size()) || ::fsync(fd.get()) != 0) {
    return ErrnoError(written < 0 ? errno : EIO, "write " + path);
  }
  return Status::Ok();
}

}  // namespace

Status MakePrivateFolder(const std::string& path) {
  return ::mkdir(path.c_str(), 0700) == 0 ? Status::Ok()
                                          : ErrnoError(errno, "create folder " + path);
}

Status WriteParty(const std::string& folder,
                  const KeyAndCertificate& party,
                  const std::string& root) {
  HEDDLE_RETURN_IF_ERROR(MakePrivateFolder(folder));
  HEDDLE_RETURN_IF_ERROR(CreateFile(folder + kKeyFile, party.key, 0600));
  HEDDLE_RETURN_IF_ERROR(CreateFile(folder + kCertificateFile, party.certificate, 0644));
  if (!root.empty()) {
    HEDDLE_RETURN_IF_ERROR(CreateFile(folder + kAuthorityFile, root, 0644));
  }
  return SyncFolder(folder);
}

Status ReplaceParty(const std::string& folder,
                    const KeyAndCertificate& party,
                    const std::string& root) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(FolderOf(folder)));
  const DraftFolder draft(folder);
  HEDDLE_RETURN_IF_ERROR(WriteParty(draft.path(), party, root));
  return FileExists(folder) ? draft.Replace() : draft.Publish();
}

DraftFolder::DraftFolder(std::string place)
    : place_(std::move(place)),
      path_(place_ + ".new-" + std::to_string(::getpid())) {}

DraftFolder::~DraftFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Status DraftFolder::Publish() const {
  if (::rename(path_.c_str(), place_.c_str()) != 0) {
    const int error = errno;
    if (error == ENOTEMPTY || error == EEXIST || error == ENOTDIR) {
      return AlreadyExistsError("{}: it is there already, and keys are never overwritten", place_);
    }
    return ErrnoError(error, "make " + place_);
  }
  return SyncFolder(FolderOf(place_));
}

Status DraftFolder::Replace() const {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) != 0) {
    return ErrnoError(errno, "replace " + place_);
  }
  return SyncFolder(FolderOf(place_));
}

}  // namespace heddle::elastic
