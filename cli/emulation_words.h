/// \file
/// "speed=0.5,memory=1GiB,link=1Gbit" as words of the command line.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::cli {

struct EmulationWords {
  job::Emulation emulation;
  bool speed = false;  ///< Which were given.
  bool memory = false;
  bool link = false;
};

/// Errors: kInvalidArgument naming the word.
Result<EmulationWords> ParseEmulation(const std::vector<std::string>& words);

}  // namespace heddle::cli
