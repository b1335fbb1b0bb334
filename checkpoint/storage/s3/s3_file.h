/// \file
/// Objects of an S3 store as files for reading.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/files/file_access.h"
#include "checkpoint/storage/s3/client.h"

namespace heddle::checkpoint {

using S3Client = std::shared_ptr<const s3::Client>;

/// The process's client of a bucket, with the settings that the environment had at the first call;
/// its connections are shared. Thread: any. Errors: kInvalidArgument (an invalid environment).
Result<S3Client> S3ClientOf(const std::string& bucket);

/// Opens an object with its current size and ETag; reads fail with kDataLoss if it is replaced
/// later. Small reads share blocks (checkpoint/storage/s3/block_cache.h). Errors: kNotFound, those
/// of the client.
Result<std::unique_ptr<SourceFile>> OpenS3Object(const S3Client& client,
                                                 const std::string& key,
                                                 s3::Client::Cancelled cancelled = {});

/// Opens an object by its URL. Errors: those of ParseUrl, S3ClientOf and OpenS3Object.
Result<std::unique_ptr<SourceFile>> OpenS3File(const std::string& url);

}  // namespace heddle::checkpoint
