/// \file
/// Uploads a local file as an object, in one request or in parts by several threads.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/storage/s3/client.h"

namespace heddle::s3 {

/// Size of a part of a file of `bytes`: at least `least`, a whole number of MiB, and so large that
/// there are at most 10,000 parts. Thread: pure. Errors: kInvalidArgument (more than S3's 5 TiB).
Result<int64_t> PartBytes(int64_t bytes, int64_t least);

/// Uploads the first `bytes` bytes of `fd` as `key`; an upload that fails is aborted. Every
/// request's signature covers the SHA-256 of its payload, so that the store refuses corrupted data;
/// to verify what is stored, read the object back. Memory: 64 KiB per thread, and libcurl's.
/// Errors: those of Client and of reading.
Status UploadFile(const Client& client,
                  const std::string& key,
                  int fd,
                  int64_t bytes,
                  const Client::Cancelled& cancelled);

}  // namespace heddle::s3
