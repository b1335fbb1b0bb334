/// \file
/// Checkpoints in an object store with the interface of Amazon S3, at s3://BUCKET/PREFIX. The
/// environment has the endpoint and the credentials (settings.h).
///
/// PREFIX/step-00000040/MANIFEST.json     its presence is the commit
/// PREFIX/step-00000040/NAME.g3.h5        a writer's file of generation 3, committed or not
/// PREFIX/.generation                     the newest generation that is known here
///
/// A writer's file is written in a folder of the local file system, uploaded, and read back. The
/// manifest comes last, by a conditional write: it replaces nothing but what its generation has
/// seen and may replace. A store that ignores conditions is refused.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/storage/s3/client.h"
#include "checkpoint/storage/s3/s3_file.h"
#include "checkpoint/storage/s3/spool_folder.h"
#include "checkpoint/storage/s3/upload.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

constexpr const char* kGenerationName = ".generation";
constexpr int64_t kGenerationLimit = 64;
/// Another process may be quicker so often before it is given up.
constexpr int kConflicts = 10;

bool Is(const Status& status, StatusCode code) {
  return status.code() == code;
}

class S3Storage : public Storage {
 public:
  S3Storage(S3Client client, const std::string& prefix)
      : client_(std::move(client)),
        prefix_(prefix.empty() ? "" : prefix + "/") {}

  Status Prepare() override {
    HEDDLE_ASSIGN_OR_RETURN(spool_, SpoolFolder::Create());
    return Status::Ok();
  }

  std::string SaveFolder(int64_t step, int64_t generation) const override {
    return spool_->path() + "/" + TemporaryFolderName(step, generation);
  }

  Status Persist(int64_t step,
                 int64_t generation,
                 const FileRecord& file,
                 const Cancelled& cancelled) const override;
  Result<int64_t> Commit(Manifest manifest) const override;
  Status Fence(int64_t generation) const override;
  Result<int64_t> HighestGeneration() const override;
  Result<std::vector<int64_t>> Steps() const override;
  Status ChangeManifest(int64_t step,
                        const std::function<Status(Manifest&)>& change) const override;
  Status Remove(int64_t step) const override;
  Status Abandon(int64_t step, int64_t generation) const override;
  Result<int> CleanOrphans(std::optional<int64_t> live_generation) const override;

 private:
  /// A manifest that is there, and its tag.
  struct Found {
    Manifest manifest;
    std::string etag;
  };

  std::string FolderKey(int64_t step) const { return prefix_ + StepFolderName(step) + "/"; }
  std::string ManifestKey(int64_t step) const { return FolderKey(step) + kManifestName; }
  Result<std::optional<Found>> FindManifest(int64_t step) const;
  Status CheckConditions(const std::string& key, const std::string& content) const;
  Status CheckFiles(const Manifest& manifest) const;
  Result<int64_t> ParseFence(const std::string& text, const std::string& key) const;
  Status DeleteAll(const std::vector<std::string>& keys) const;

  const S3Client client_;
  const std::string prefix_;  ///< Prefix of all keys; empty, or with a slash at its end.
  std::unique_ptr<SpoolFolder> spool_;
};

/// None when there is no manifest. Errors: kDataLoss for one that cannot be read.
Result<std::optional<S3Storage::Found>> S3Storage::FindManifest(int64_t step) const {
  auto object = client_->Get(ManifestKey(step), kManifestLimit);
  if (Is(object.status(), StatusCode::kNotFound)) {
    return std::optional<Found>();
  }
  HEDDLE_RETURN_IF_ERROR(object.status());
  auto manifest = ParseManifest(object->content);
  HEDDLE_RETURN_IF_ERROR(manifest.status().WithContext("{}", client_->UrlOf(ManifestKey(step))));
  return std::optional(Found{.manifest = *std::move(manifest), .etag = std::move(object->etag)});
}

Status S3Storage::Persist(int64_t step,
                          int64_t generation,
                          const FileRecord& file,
                          const Cancelled& cancelled) const {
  const std::string path = SaveFolder(step, generation) + "/" + file.name;
  const std::string key = FolderKey(step) + file.name;
  {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
      return ErrnoError(errno, "open " + path);
    }
    HEDDLE_RETURN_IF_ERROR(s3::UploadFile(*client_, key, fd.get(), file.bytes, cancelled));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto stored, OpenS3Object(client_, key, cancelled));
  Status status;
  if (stored->bytes() != file.bytes) {
    status =
        DataLossError("{}: {} bytes arrived of {}", stored->name(), stored->bytes(), file.bytes);
  } else {
    HEDDLE_ASSIGN_OR_RETURN(const std::string hash, HashFile(*stored));
    status = hash == file.hash
                 ? Status::Ok()
                 : DataLossError("{}: other bytes arrived than were sent", stored->name());
  }
  if (!status.ok()) {
    client_->Delete(key).IgnoreError("it belongs to no checkpoint");
    return status;
  }
  ::unlink(path.c_str());
  return Status::Ok();
}

/// A store that ignores conditions would let an old generation replace what a newer one wrote. The
/// object `key` exists and has this content.
Status S3Storage::CheckConditions(const std::string& key, const std::string& content) const {
  const Status status = client_->Put(key, {.text = content}, {.absent = true, .etag = {}}).status();
  if (Is(status, StatusCode::kFailedPrecondition)) {
    return Status::Ok();
  }
  if (status.ok() || Is(status, StatusCode::kUnimplemented)) {
    return UnimplementedError(
        "{}: the store does not know conditional writes (If-None-Match), without which it cannot "
        "keep checkpoints apart",
        client_->UrlOf(key));
  }
  return status;
}

Result<int64_t> S3Storage::ParseFence(const std::string& text, const std::string& key) const {
  int64_t known = -1;
  if (std::from_chars(text.data(), text.data() + text.size(), known).ec != std::errc()) {
    return DataLossError("{}: not a number", client_->UrlOf(key));
  }
  return known;
}

Status S3Storage::Fence(int64_t generation) const {
  const std::string key = prefix_ + kGenerationName;
  const std::string content = fmt::format("{}\n", generation);
  for (int i = 0; i < kConflicts; ++i) {
    const auto object = client_->Get(key, kGenerationLimit);
    s3::Condition condition{.absent = true, .etag = {}};
    if (object.ok()) {
      HEDDLE_ASSIGN_OR_RETURN(const int64_t known, ParseFence(object->content, key));
      if (generation < known) {
        return AbortedError("generation {} is over: {} is known at {}", generation, known,
                            client_->UrlOf(prefix_));
      }
      if (generation == known) {
        return CheckConditions(key, object->content);
      }
      condition = {.absent = false, .etag = object->etag};
    } else if (!Is(object.status(), StatusCode::kNotFound)) {
      return object.status();
    }
    // Another process was quicker, or the response was lost: the next read shows which.
    const Status status = client_->Put(key, {.text = content}, condition).status();
    if (!status.ok() && !Is(status, StatusCode::kFailedPrecondition)) {
      return status;
    }
  }
  return UnavailableError("{}: others write it all the time", client_->UrlOf(key));
}

Status S3Storage::CheckFiles(const Manifest& manifest) const {
  for (const FileRecord& file : manifest.files) {
    const std::string key = FolderKey(manifest.step) + file.name;
    const auto facts = client_->Head(key);
    if (!facts.ok() && !Is(facts.status(), StatusCode::kNotFound)) {
      return facts.status();
    }
    if (!facts.ok() || facts->bytes != file.bytes) {
      return DataLossError("{}: {}", client_->UrlOf(key),
                           facts.ok()
                               ? fmt::format("{} bytes, {} reported", facts->bytes, file.bytes)
                               : "it is missing");
    }
  }
  return Status::Ok();
}

Result<int64_t> S3Storage::Commit(Manifest manifest) const {
  const std::string text = EncodeManifest(manifest);
  const int64_t bytes = manifest.StoredBytes() + static_cast<int64_t>(text.size());
  const std::string key = ManifestKey(manifest.step);
  for (int i = 0; i < kConflicts; ++i) {
    // The manifest is read before the fence: a newer generation that commits after this read
    // changes the manifest, and the condition fails.
    auto old = client_->Get(key, kManifestLimit);
    if (!old.ok() && !Is(old.status(), StatusCode::kNotFound)) {
      return old.status();
    }
    if (old.ok() && old->content == text) {
      return bytes;  // The answer to the write was lost.
    }
    if (manifest.generation != kImportGeneration) {
      HEDDLE_RETURN_IF_ERROR(Fence(manifest.generation));
    }
    HEDDLE_RETURN_IF_ERROR(CheckFiles(manifest));
    const s3::Condition condition{.absent = !old.ok(), .etag = old.ok() ? old->etag : ""};
    const Status status = client_->Put(key, {.text = text}, condition).status();
    if (status.ok()) {
      return bytes;
    }
    if (!Is(status, StatusCode::kFailedPrecondition)) {
      return status;
    }
  }
  return UnavailableError("{}: others write it all the time", client_->UrlOf(key));
}

Result<int64_t> S3Storage::HighestGeneration() const {
  int64_t highest = -1;
  const auto fence = client_->Get(prefix_ + kGenerationName, kGenerationLimit);
  if (fence.ok()) {
    HEDDLE_ASSIGN_OR_RETURN(highest, ParseFence(fence->content, prefix_ + kGenerationName));
  } else if (!Is(fence.status(), StatusCode::kNotFound)) {
    return fence.status();
  }
  HEDDLE_ASSIGN_OR_RETURN(const s3::Listing listing, client_->List(prefix_ + "step-", false));
  for (const std::string& key : listing.keys) {
    highest = std::max(highest, GenerationOfFile(key).value_or(-1));
  }
  return highest;
}

Result<std::vector<int64_t>> S3Storage::Steps() const {
  auto listing = client_->List(prefix_, /*folders=*/true);
  HEDDLE_RETURN_IF_ERROR(listing.status());
  std::vector<int64_t> steps;
  for (const std::string& folder : listing->folders) {
    const auto step = StepOfFolder(folder);
    if (!step) {
      continue;
    }
    const Status status = client_->Head(ManifestKey(*step)).status();
    if (status.ok()) {
      steps.push_back(*step);
    } else if (!Is(status, StatusCode::kNotFound)) {
      return status;
    }
  }
  return steps;
}

Status S3Storage::ChangeManifest(int64_t step,
                                 const std::function<Status(Manifest&)>& change) const {
  const std::string url = client_->UrlOf(ManifestKey(step));
  for (int i = 0; i < kConflicts; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(auto found, FindManifest(step));
    if (!found) {
      return NotFoundError("{}: no such checkpoint", url);
    }
    HEDDLE_RETURN_IF_ERROR(change(found->manifest).WithContext("{}", url));
    const std::string text = EncodeManifest(found->manifest);
    const Status status =
        client_->Put(ManifestKey(step), {.text = text}, {.absent = false, .etag = found->etag})
            .status();
    if (!Is(status, StatusCode::kFailedPrecondition)) {
      return status;
    }
  }
  return UnavailableError("{}: others write it all the time", url);
}

Status S3Storage::DeleteAll(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    HEDDLE_RETURN_IF_ERROR(client_->Delete(key));
  }
  return Status::Ok();
}

Status S3Storage::Remove(int64_t step) const {
  HEDDLE_RETURN_IF_ERROR(client_->Delete(ManifestKey(step)));
  HEDDLE_ASSIGN_OR_RETURN(const s3::Listing listing, client_->List(FolderKey(step), false));
  return DeleteAll(listing.keys);
}

Status S3Storage::Abandon(int64_t step, int64_t generation) const {
  HEDDLE_ASSIGN_OR_RETURN(const s3::Listing listing, client_->List(FolderKey(step), false));
  auto keys = listing.keys;
  std::erase_if(keys, [&](const std::string& key) { return GenerationOfFile(key) != generation; });
  if (keys.empty()) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto found, FindManifest(step));
  const bool is_committed = found && found->manifest.generation == generation;
  return is_committed ? Status::Ok() : DeleteAll(keys);
}

Result<int> S3Storage::CleanOrphans(std::optional<int64_t> live_generation) const {
  const auto is_dead = [&](const std::string& key) {
    const auto generation = GenerationOfFile(key);
    return live_generation ? generation && *generation < *live_generation : key.ends_with(".h5");
  };
  HEDDLE_ASSIGN_OR_RETURN(const s3::Listing listing, client_->List(prefix_ + "step-", false));
  std::map<int64_t, std::vector<std::string>> dead;  // By step.
  std::set<int64_t> committed;
  for (const std::string& key : listing.keys) {
    const size_t slash = key.rfind('/');
    const auto step = StepOfFolder(key.substr(0, slash == std::string::npos ? 0 : slash));
    if (!step || FolderKey(*step).size() != slash + 1) {
      continue;
    }
    if (key == ManifestKey(*step)) {
      committed.insert(*step);
    } else if (is_dead(key)) {
      dead[*step].push_back(key);
    }
  }
  int removed = 0;
  for (auto& [step, keys] : dead) {
    if (committed.contains(step)) {
      const auto found = FindManifest(step);
      if (Is(found.status(), StatusCode::kDataLoss)) {
        continue;  // FindNewestSound reports it.
      }
      HEDDLE_RETURN_IF_ERROR(found.status());
      std::set<std::string> listed;
      for (const FileRecord& file : *found ? (*found)->manifest.files : std::vector<FileRecord>()) {
        listed.insert(FolderKey(step) + file.name);
      }
      std::erase_if(keys, [&](const std::string& key) { return listed.contains(key); });
    }
    HEDDLE_RETURN_IF_ERROR(DeleteAll(keys));
    removed += static_cast<int>(keys.size());
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto uploads, client_->Uploads(prefix_ + "step-"));
  for (const s3::Upload& upload : uploads) {
    if (is_dead(upload.key)) {
      HEDDLE_RETURN_IF_ERROR(client_->AbortUpload(upload.key, upload.id));
      ++removed;
    }
  }
  return removed;
}

Result<std::unique_ptr<Storage>> OpenS3Storage(const std::string& root) {
  HEDDLE_ASSIGN_OR_RETURN(const s3::Location location, s3::ParseUrl(root));
  HEDDLE_ASSIGN_OR_RETURN(S3Client client, S3ClientOf(location.bucket));
  return std::unique_ptr<Storage>(std::make_unique<S3Storage>(std::move(client), location.key));
}

const StorageRegistration kS3{{.scheme = "s3://",
                               .place = "at s3://BUCKET/PREFIX",
                               .open_storage = OpenS3Storage,
                               .open_file = OpenS3File}};

}  // namespace

}  // namespace heddle::checkpoint
