/// \file
/// A local file becomes an object: in one request, or in parts that several threads send.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/storage/s3/client.h"

namespace heddle::s3 {

/// Bytes of a part of a file of `bytes`: at least `least`, a whole number of MiB, and such that
/// there are no more than 10,000. Thread: pure. Errors: kInvalidArgument above S3's 5 TiB.
Result<int64_t> PartBytes(int64_t bytes, int64_t least);

/// Uploads the `bytes` of `fd` as `key`; what was begun and fails is taken back. Every request's
/// signature covers the SHA-256 of what it sends, so that the store refuses what arrives otherwise;
/// whoever wants to be sure reads the object back. Memory: 64 KiB a thread, and libcurl's. Errors:
/// those of Client and of reading.
Status UploadFile(const Client& client,
                  const std::string& key,
                  int fd,
                  int64_t bytes,
                  const Client::Cancelled& cancelled);

}  // namespace heddle::s3
