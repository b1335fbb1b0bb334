/// \file
/// Finds values of a job file that have no effect, or another effect than their names suggest, and
/// demands that it cannot keep.
#pragma once

#include <string>
#include <vector>

#include "base/yaml/yaml.h"
#include "engine/job/job.h"

namespace heddle::job {

/// Records as problems the values that have no effect because of other keys of the file.
void RefuseWithoutEffect(YamlReader& root, const JobConfig& job);

/// Records as a problem a guarantee that other keys of the file rule out.
void RefuseVoidGuarantee(YamlReader& root, const JobConfig& job);

/// Records as problems what stages of several workers cannot do.
void RefuseParallel(YamlReader& root, const JobConfig& job);

/// Warnings that a run prints when it starts, one line each: values whose effect may surprise.
std::vector<std::string> StartWarnings(const JobConfig& job);

/// Warnings for a user who submits the job, one line for each value that only `heddle train` uses.
std::vector<std::string> SubmitWarnings(const JobConfig& job);

}  // namespace heddle::job
