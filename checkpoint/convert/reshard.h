/// \file
/// Rewriting a native checkpoint for other writers: the same state, cut into other files.
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

/// The files of `workers` writers: of equal bytes, but for less than a row of a tensor. A tensor is
/// cut along its first dimension, in at most as many places as there are borders between writers. A
/// writer that gets nothing has no file. Pure; `workers` is at least 1.
std::vector<FilePlan> FilesOfWriters(const Manifest& manifest, int64_t workers);

/// The files of `plan`'s workers: what each of them would write when it trains the manifest's
/// model. Pure. Errors: kInvalidArgument when the plan is not one for the model, or the model is
/// not known or has no such tensor.
Result<std::vector<FilePlan>> FilesOfPlan(const Manifest& manifest, const program::Plan& plan);

/// Tells the files of the checkpoint whose manifest it is given.
using ChooseFiles = std::function<Result<std::vector<FilePlan>>(const Manifest&)>;

struct ReshardOptions {
  bool overwrite = false;
  int threads = 1;
  Progress progress = {};
  std::function<void(const std::string& line)> note = {};  ///< As ConvertOptions::note.
};

struct ReshardSummary {
  int64_t files = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< Of the elements.
};

/// Writes the checkpoint at `source` to `target` with the files that `choose` says. Everything else
/// of the manifest stays as it is, each tensor's digest too, which is compared: it is the proof
/// that every element came through. Bounded memory, one rename and going on after a kill: as
/// Convert. Errors: as Convert; kDataLoss when a digest differs.
Result<ReshardSummary> Reshard(const std::string& source,
                               const std::string& target,
                               const ChooseFiles& choose,
                               const ReshardOptions& options);

}  // namespace heddle::checkpoint
