/// \file
/// Objects of an S3 store as files that are read.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/files/file_access.h"
#include "checkpoint/storage/s3/client.h"

namespace heddle::checkpoint {

using S3Client = std::shared_ptr<const s3::Client>;

/// The bucket's client, as the environment says when the process first asks; all of the process
/// share its connections. Thread: any. Errors: kInvalidArgument for a bad environment.
Result<S3Client> S3ClientOf(const std::string& bucket);

/// An object. Its size and tag are those of now: it is kDataLoss when it is replaced while it is
/// read. Small reads share blocks (checkpoint/storage/s3/block_cache.h). Errors: kNotFound, those
/// of the client.
Result<std::unique_ptr<SourceFile>> OpenS3Object(const S3Client& client,
                                                 const std::string& key,
                                                 s3::Client::Cancelled cancelled = {});

/// The same by its URL.
Result<std::unique_ptr<SourceFile>> OpenS3File(const std::string& url);

}  // namespace heddle::checkpoint
