#include "checkpoint/import.h"

#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/unique_fd.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"

namespace heddle::checkpoint {
namespace {

constexpr int64_t kImportGeneration =
    0;  // Below every generation that saves: CleanOrphans removes what is left.

Status FileSystemError(const std::error_code& error, const std::string& what) {
  return ErrnoError(error.value(), what);
}

/// The manifest's tensors must be the expected ones, whatever their order.
Status CheckState(const Manifest& manifest, const std::vector<TensorInfo>& expected) {
  std::map<std::pair<std::string, std::string>, const TensorInfo*> found;
  for (const TensorRecord& tensor : manifest.tensors) {
    found.emplace(std::pair(tensor.info.name, tensor.info.role), &tensor.info);
  }
  for (const TensorInfo& info : expected) {
    const auto at = found.find({info.name, info.role});
    if (at == found.end()) {
      return InvalidArgumentError("it has no tensor '{}' ({}): it is of another model", info.name,
                                  info.role);
    }
    if (*at->second != info) {
      return InvalidArgumentError(
          "its tensor '{}' ({}) is {} {}, the job's is {} {}: it is of another model", info.name,
          info.role, DTypeName(at->second->dtype), ToString(at->second->shape),
          DTypeName(info.dtype), ToString(info.shape));
    }
    found.erase(at);
  }
  if (!found.empty()) {
    const auto& [name, role] = found.begin()->first;
    return InvalidArgumentError(
        "it has a tensor '{}' ({}) that the job has not: it is of another "
        "model",
        name, role);
  }
  return Status::Ok();
}

/// On storage when it returns.
Status LinkOrCopy(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::create_hard_link(from, to, error);
  if (!error) {
    return Status::Ok();
  }
  error.clear();
  std::filesystem::copy_file(from, to, error);
  if (error) {
    return FileSystemError(error, "copy " + from + " to " + to);
  }
  const UniqueFd copy(::open(to.c_str(), O_RDONLY | O_CLOEXEC));
  return copy.valid() && ::fsync(copy.get()) == 0 ? Status::Ok() : ErrnoError(errno, "sync " + to);
}

/// All files of the checkpoint into a temporary folder, then one rename.
Status Adopt(const Reader& reader, const std::string& root) {
  const std::string temporary =
      root + "/" + TemporaryFolderName(reader.manifest().step, kImportGeneration);
  HEDDLE_RETURN_IF_ERROR(MakeFolders(root));
  HEDDLE_RETURN_IF_ERROR(Abandon(root, reader.manifest().step, kImportGeneration));
  HEDDLE_RETURN_IF_ERROR(MakeFolders(temporary));
  for (const FileRecord& file : reader.manifest().files) {
    HEDDLE_RETURN_IF_ERROR(
        LinkOrCopy(reader.path() + "/" + file.name, temporary + "/" + file.name));
  }
  HEDDLE_RETURN_IF_ERROR(
      LinkOrCopy(reader.path() + "/" + kManifestName, temporary + "/" + kManifestName));
  HEDDLE_RETURN_IF_ERROR(SyncFolder(temporary));
  std::error_code error;
  std::filesystem::rename(temporary, root + "/" + StepFolderName(reader.manifest().step), error);
  if (error) {
    return FileSystemError(error, "rename " + temporary);
  }
  return SyncFolder(root);
}

}  // namespace

Status CheckImport(const std::string& path,
                   const std::string& root,
                   const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(const auto own, List(root));
  if (!own.empty()) {
    return Status::Ok();
  }
  const auto reader = Reader::Open(path);
  Status status = reader.ok() ? CheckState((*reader)->manifest(), expected) : reader.status();
  if (status.ok()) {
    status = (*reader)->CheckFileHashes();
  }
  return status.ok() ? status : status.WithContext("checkpoint {}", path);
}

Result<int64_t> Import(const std::string& path,
                       const std::string& root,
                       const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(const auto own, List(root));
  if (!own.empty()) {
    return own.back().step;
  }
  HEDDLE_RETURN_IF_ERROR(CheckImport(path, root, expected));
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(path));
  HEDDLE_RETURN_IF_ERROR(Adopt(*reader, root).WithContext("checkpoint {}", path));
  return reader->manifest().step;
}

}  // namespace heddle::checkpoint
