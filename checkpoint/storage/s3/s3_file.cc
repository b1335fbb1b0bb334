#include "checkpoint/storage/s3/s3_file.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "checkpoint/storage/s3/block_cache.h"

namespace heddle::checkpoint {

namespace {

/// The cache of all objects that this process reads.
s3::BlockCache& Blocks() {
  static s3::BlockCache blocks;
  return blocks;
}

class S3File : public SourceFile {
 public:
  S3File(S3Client client,
         std::string key,
         const s3::ObjectFacts& facts,
         s3::Client::Cancelled cancelled)
      : SourceFile(client->UrlOf(key), facts.bytes),
        client_(std::move(client)),
        key_(std::move(key)),
        etag_(facts.etag),
        cancelled_(std::move(cancelled)) {}

  Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || static_cast<int64_t>(out.size()) > bytes() - offset) {
      return DataLossError("{}: {} bytes, {} from {} were expected", name(), bytes(), out.size(),
                           offset);
    }
    return Blocks().Read(number_, bytes(), offset, out,
                         [this](int64_t from, std::span<std::byte> range) {
                           return client_->Read(key_, etag_, from, range, cancelled_);
                         });
  }

 private:
  const S3Client client_;
  const std::string key_;
  const std::string etag_;
  const s3::Client::Cancelled cancelled_;
  const uint64_t number_ =
      NextNumber();  ///< Another one at each opening: it may be another object.

  static uint64_t NextNumber() {
    static std::atomic<uint64_t> next = 1;
    return next++;
  }
};

}  // namespace

Result<S3Client> S3ClientOf(const std::string& bucket) {
  static Mutex mutex;
  static std::map<std::string, S3Client> clients;
  const MutexLock lock(mutex);
  S3Client& client = clients[bucket];
  if (client == nullptr) {
    const auto variable = [](const char* name) -> const char* {
      return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
    };
    HEDDLE_ASSIGN_OR_RETURN(s3::Settings settings, s3::SettingsFrom(variable));
    client = std::make_shared<const s3::Client>(std::move(settings), bucket);
  }
  return client;
}

Result<std::unique_ptr<SourceFile>> OpenS3Object(const S3Client& client,
                                                 const std::string& key,
                                                 s3::Client::Cancelled cancelled) {
  HEDDLE_ASSIGN_OR_RETURN(const s3::ObjectFacts facts, client->Head(key));
  return std::unique_ptr<SourceFile>(
      std::make_unique<S3File>(client, key, facts, std::move(cancelled)));
}

Result<std::unique_ptr<SourceFile>> OpenS3File(const std::string& url) {
  HEDDLE_ASSIGN_OR_RETURN(const s3::Location location, s3::ParseUrl(url));
  HEDDLE_ASSIGN_OR_RETURN(const S3Client client, S3ClientOf(location.bucket));
  return OpenS3Object(client, location.key);
}

}  // namespace heddle::checkpoint
