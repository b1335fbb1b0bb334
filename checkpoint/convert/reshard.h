/// \file
/// Rewrites a native checkpoint for other writers: the same state, divided into other files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/progress.h"
#include "checkpoint/format/types.h"
#include "checkpoint/formats/native_files.h"
#include "engine/program/plan.h"

namespace heddle::checkpoint {

/// The files of `workers` writers, which have equally many bytes but for less than a row of a
/// tensor. A tensor is cut along its first dimension, in at most as many places as there are
/// borders between writers. A writer without bytes has no file. Pure; `workers` is at least 1.
std::vector<FilePlan> FilesOfWriters(const Manifest& manifest, int64_t workers);

/// The files that the workers of `plan` would write when they train the manifest's model. Pure.
/// Errors: kInvalidArgument (the plan does not fit the model, or the model is unknown or lacks a
/// tensor of the manifest).
Result<std::vector<FilePlan>> FilesOfPlan(const Manifest& manifest, const program::Plan& plan);

/// Chooses the files for the checkpoint with the given manifest.
using ChooseFiles = std::function<Result<std::vector<FilePlan>>(const Manifest&)>;

struct ReshardOptions {
  bool overwrite = false;
  int threads = 1;
  Progress progress = {};
  std::function<void(const std::string& line)> note = {};  ///< See ConvertOptions::note.
};

struct ReshardSummary {
  int64_t files = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< Bytes of the elements.
};

/// Writes the checkpoint at `source` to `target` with the files that `choose` returns. Everything
/// else of the manifest is unchanged. Each tensor's digest is recomputed and compared, which proves
/// that all elements are unchanged. Like Convert, it needs bounded memory, makes `target` appear in
/// one rename, and resumes after the process was killed. Errors: those of Convert; kDataLoss (a
/// digest differs).
Result<ReshardSummary> Reshard(const std::string& source,
                               const std::string& target,
                               const ChooseFiles& choose,
                               const ReshardOptions& options);

}  // namespace heddle::checkpoint
