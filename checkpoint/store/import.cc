#include "checkpoint/store/import.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/storage/storage.h"
#include "checkpoint/store/store.h"

namespace heddle::checkpoint {
namespace {

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

/// Writes what `file` has to `to` and brings it to storage.
Status Download(const SourceFile& file, const std::string& to) {
  constexpr int64_t kPiece = int64_t{8} << 20;
  const UniqueFd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!out.valid()) {
    return ErrnoError(errno, "create " + to);
  }
  Bytes piece;
  for (int64_t at = 0; at < file.bytes(); at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, file.bytes() - at)));
    HEDDLE_RETURN_IF_ERROR(file.ReadAt(at, piece));
    for (size_t done = 0; done < piece.size();) {
      const ssize_t put = ::write(out.get(), piece.data() + done, piece.size() - done);
      if (put < 0 && errno != EINTR) {
        return ErrnoError(errno, "write " + to);
      }
      done += static_cast<size_t>(std::max<ssize_t>(put, 0));
    }
  }
  return ::fsync(out.get()) == 0 ? Status::Ok() : ErrnoError(errno, "sync " + to);
}

/// On storage when it returns.
Status LinkOrCopy(const std::string& from, const std::string& to) {
  if (IsUrl(from)) {
    HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenFile(from));
    return Download(*file, to);
  }
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

/// All files of the checkpoint to a root that is a URL, then the manifest. Its generation was
/// another job's: what this one saves replaces it.
Status Bring(const Reader& reader, const std::string& root) {
  Manifest manifest = reader.manifest();
  manifest.generation = kImportGeneration;
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  HEDDLE_RETURN_IF_ERROR(storage->Prepare());
  const std::string folder = storage->SaveFolder(manifest.step, manifest.generation);
  HEDDLE_RETURN_IF_ERROR(MakeFolders(folder));
  for (const FileRecord& file : manifest.files) {
    HEDDLE_RETURN_IF_ERROR(
        LinkOrCopy(JoinPath(reader.path(), file.name), folder + "/" + file.name));
    HEDDLE_RETURN_IF_ERROR(storage->Persist(manifest.step, manifest.generation, file, {}));
  }
  return storage->Commit(std::move(manifest)).status();
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
        LinkOrCopy(JoinPath(reader.path(), file.name), temporary + "/" + file.name));
  }
  HEDDLE_RETURN_IF_ERROR(
      LinkOrCopy(JoinPath(reader.path(), kManifestName), temporary + "/" + kManifestName));
  HEDDLE_RETURN_IF_ERROR(SyncFolder(temporary));
  std::error_code error;
  std::filesystem::rename(temporary, root + "/" + StepFolderName(reader.manifest().step), error);
  if (error) {
    return FileSystemError(error, "rename " + temporary);
  }
  return SyncFolder(root);
}

}  // namespace

Result<int64_t> CheckImport(const std::string& path,
                            const std::string& root,
                            const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(const auto own, List(root));
  if (!own.empty()) {
    return own.back().step;
  }
  const auto reader = Reader::Open(path);
  Status status = reader.ok() ? CheckState((*reader)->manifest(), expected) : reader.status();
  if (status.ok()) {
    status = (*reader)->CheckFileHashes();
  }
  HEDDLE_RETURN_IF_ERROR(status.WithContext("checkpoint {}", path));
  return (*reader)->manifest().step;
}

Result<int64_t> Import(const std::string& path,
                       const std::string& root,
                       const std::vector<TensorInfo>& expected) {
  HEDDLE_ASSIGN_OR_RETURN(const auto own, List(root));
  if (!own.empty()) {
    return own.back().step;
  }
  HEDDLE_RETURN_IF_ERROR(CheckImport(path, root, expected).status());
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(path));
  const Status status = IsUrl(root) ? Bring(*reader, root) : Adopt(*reader, root);
  HEDDLE_RETURN_IF_ERROR(status.WithContext("checkpoint {}", path));
  return reader->manifest().step;
}

}  // namespace heddle::checkpoint
