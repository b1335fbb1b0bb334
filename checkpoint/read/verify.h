/// \file
/// Checks every byte of a checkpoint and says what is damaged.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/progress.h"

namespace heddle::checkpoint {

struct Damage {
  std::string file;    ///< Inside the checkpoint's folder.
  std::string tensor;  ///< "name (role)" when the bytes are a tensor's, else empty.
  std::string what;
};

/// "FILE: tensor 'NAME (ROLE)': WHAT".
std::string ToString(const Damage& damage);

/// All checksums (manifest, files, chunks), sizes, coverage, and the digest of every tensor from
/// its decoded elements; derived elements are computed from their source once all files are sound.
/// Empty: the checkpoint is sound. Errors: kInvalidArgument not a checkpoint; kPermissionDenied;
/// kUnimplemented a newer version; those of a store that cannot be reached. `progress` counts what
/// is read: every chunk, and then its file.
Result<std::vector<Damage>> Verify(const std::string& path, const Progress& progress = {});

}  // namespace heddle::checkpoint
