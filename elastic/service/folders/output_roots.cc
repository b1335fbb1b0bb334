#include "elastic/service/folders/output_roots.h"

#include <algorithm>
#include <filesystem>

#include "base/system/file.h"
#include "base/utf8.h"
#include "checkpoint/storage/storage.h"
#include "elastic/service/folders/run_folder.h"

namespace heddle::elastic {
namespace {

// Removes the slashes at the end of a path or URL, but for those of "/" and "s3://".
std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/' && !path.ends_with("://")) {
    path.pop_back();
  }
  return path;
}

bool IsBelow(const std::string& path, const std::string& root) {
  return path.size() > root.size() + 1 && path.starts_with(root) && path[root.size()] == '/';
}

// Resolves the links of the part of `path` that exists, and "." and ".." in the rest.
Result<std::string> Resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, error);
  if (error) {
    return ErrnoError(error.value(), "look at " + path);
  }
  return WithoutSlashes(found.lexically_normal().string());
}

// True if no part of the URL's path could lead a client or a store out of the bucket.
bool IsPlainUrl(const std::string& url) {
  const std::string rest = url.substr(url.find("://") + 3);
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find('/', begin), rest.size());
    const std::string word = rest.substr(begin, end - begin);
    if (word.empty() || word == "." || word == ".." ||
        word.find_first_of("?#%\\") != std::string::npos) {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

}  // namespace

Result<OutputRoots> OutputRoots::Make(const std::vector<std::string>& roots) {
  OutputRoots made;
  for (const std::string& root : roots) {
    if (checkpoint::IsUrl(root)) {
      const std::string url = WithoutSlashes(root);
      if (!IsPlainUrl(url)) {
        return InvalidArgumentError("--output-root {}: expected s3://BUCKET or s3://BUCKET/PREFIX",
                                    root);
      }
      made.urls_.push_back(url);
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(root));
    HEDDLE_RETURN_IF_ERROR(CheckUtf8("--output-root", absolute));
    HEDDLE_RETURN_IF_ERROR(MakeFolders(absolute));
    HEDDLE_ASSIGN_OR_RETURN(std::string folder, Resolved(absolute));
    made.folders_.push_back(std::move(folder));
  }
  return made;
}

Result<std::string> OutputRoots::Check(const job::JobConfig& job, const std::string& output) const {
  HEDDLE_ASSIGN_OR_RETURN(std::string place, Place("output folder", output));
  // FolderClaim checks the owner of the output folder itself, under its lock.
  HEDDLE_RETURN_IF_ERROR(CheckOwners("output folder", output, FolderOf(place), job.hash));
  const std::string& store = job.checkpoint.store;
  if (checkpoint::IsUrl(store)) {
    HEDDLE_RETURN_IF_ERROR(CheckUrl(store));
    return place;
  }
  const std::string what = store.empty() ? "folder of checkpoints" : "checkpoint.store";
  const std::string named = job.checkpoint.RootIn(place);
  HEDDLE_ASSIGN_OR_RETURN(const std::string checkpoints, Place(what, named));
  if (!store.empty() || checkpoints != named) {
    HEDDLE_RETURN_IF_ERROR(CheckOwners(what, named, checkpoints, job.hash));
  }
  return place;
}

Result<std::string> OutputRoots::Place(const std::string& what, const std::string& path) const {
  if (!path.starts_with('/') || path.find('\0') != std::string::npos) {
    return PermissionDeniedError("{} {}: expected a path from the root of the file system", what,
                                 path);
  }
  HEDDLE_ASSIGN_OR_RETURN(std::string place, Resolved(path));
  const bool below = std::any_of(folders_.begin(), folders_.end(),
                                 [&](const std::string& folder) { return IsBelow(place, folder); });
  if (!below) {
    return Refused(what, path);
  }
  return place;
}

Status OutputRoots::CheckOwners(const std::string& what,
                                const std::string& path,
                                const std::string& first,
                                const std::string& job_hash) const {
  const auto root = std::find_if(folders_.begin(), folders_.end(), [&](const std::string& folder) {
    return first == folder || IsBelow(first, folder);
  });
  for (std::string above = first; root != folders_.end() && above.size() > root->size();
       above = FolderOf(above)) {
    const Result<std::string> owner = RunFolderOwner(above);
    if (owner.ok() && *owner != job_hash) {
      return PermissionDeniedError("{} {} lies in the folder of another job, {}", what, path,
                                   above);
    }
  }
  return Status::Ok();
}

Status OutputRoots::CheckUrl(const std::string& url) const {
  const bool allowed = IsPlainUrl(WithoutSlashes(url)) &&
                       std::any_of(urls_.begin(), urls_.end(), [&](const std::string& root) {
                         return IsBelow(WithoutSlashes(url), root);
                       });
  return allowed ? Status::Ok() : Refused("checkpoint.store", url);
}

Status OutputRoots::Refused(const std::string& what, const std::string& path) const {
  std::vector<std::string> all = folders_;
  all.insert(all.end(), urls_.begin(), urls_.end());
  return PermissionDeniedError(
      "{} {} is not below a place where this coordinator's jobs may write ({}): choose one there, "
      "or let its operator add --output-root",
      what, path, fmt::join(all, ", "));
}

}  // namespace heddle::elastic
