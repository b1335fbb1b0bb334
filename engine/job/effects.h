/// \file
/// Values of a job file that cannot have their effect, or not the one that their words suggest.
#pragma once

#include <string>
#include <vector>

#include "base/yaml/yaml.h"
#include "engine/job/job.h"

namespace heddle::job {

/// Notes as problems the values that other keys of the file rule out.
void RefuseWithoutEffect(YamlReader& root, const JobConfig& job);

/// What a run says when it starts, a line each: values that are honoured and yet may surprise.
std::vector<std::string> StartWarnings(const JobConfig& job);

/// The job's values that only `heddle train` honours, a line each, for who submits it.
std::vector<std::string> SubmitWarnings(const JobConfig& job);

}  // namespace heddle::job
