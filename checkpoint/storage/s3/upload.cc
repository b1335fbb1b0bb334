#include "checkpoint/storage/s3/upload.h"

#include <algorithm>

#include "base/mutex.h"
#include "base/thread.h"

namespace heddle::s3 {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMaxParts = 10'000;
constexpr int64_t kMaxBytes = int64_t{5} << 40;
constexpr int64_t kThreads = 4;

/// The parts' tags, in their order.
Result<std::vector<std::string>> SendParts(const Client& client,
                                           const std::string& key,
                                           const std::string& id,
                                           const Payload& whole,
                                           int64_t part,
                                           const Client::Cancelled& cancelled) {
  const int64_t count = (whole.bytes + part - 1) / part;
  std::vector<std::string> etags(static_cast<size_t>(count));
  Mutex mutex;
  Status failure;
  int64_t next = 0;
  const auto give_up = [&] {
    const MutexLock lock(mutex);
    return !failure.ok() || (cancelled && cancelled());
  };
  const auto work = [&] {
    for (;;) {
      int64_t mine = 0;
      {
        const MutexLock lock(mutex);
        if (next == count || !failure.ok()) {
          return;
        }
        mine = next++;
      }
      const Payload piece{.fd = whole.fd,
                          .offset = whole.offset + mine * part,
                          .bytes = std::min(part, whole.bytes - mine * part)};
      auto etag = client.UploadPart(key, id, mine + 1, piece, give_up);
      const MutexLock lock(mutex);
      if (!etag.ok()) {
        failure = failure.ok() ? etag.status() : failure;
        return;
      }
      etags[static_cast<size_t>(mine)] = *std::move(etag);
    }
  };
  {
    std::vector<Thread> helpers;
    for (int64_t i = 1; i < std::min(kThreads, count); ++i) {
      helpers.emplace_back("heddle-upload", work);
    }
    work();
  }
  HEDDLE_RETURN_IF_ERROR(failure);
  return etags;
}

}  // namespace

Result<int64_t> PartBytes(int64_t bytes, int64_t least) {
  if (bytes > kMaxBytes) {
    return InvalidArgumentError("an object store takes files of at most {} bytes, not of {}",
                                kMaxBytes, bytes);
  }
  const int64_t needed = (bytes + kMaxParts - 1) / kMaxParts;
  return (std::max(needed, least) + kMiB - 1) / kMiB * kMiB;
}

Status UploadFile(const Client& client,
                  const std::string& key,
                  int fd,
                  int64_t bytes,
                  const Client::Cancelled& cancelled) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t part, PartBytes(bytes, client.settings().part_bytes));
  const Payload whole{.fd = fd, .bytes = bytes};
  if (bytes <= part) {
    return client.Put(key, whole, {}, cancelled).status();
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string id, client.BeginUpload(key));
  const auto etags = SendParts(client, key, id, whole, part, cancelled);
  Status status = etags.status();
  if (status.ok()) {
    status = client.CompleteUpload(key, id, *etags);
    if (status.code() == StatusCode::kNotFound && client.Head(key).ok()) {
      return Status::Ok();  // The first attempt's answer was lost.
    }
  }
  if (!status.ok()) {
    client.AbortUpload(key, id).IgnoreError("CleanOrphans removes what is left");
  }
  return status;
}

}  // namespace heddle::s3
