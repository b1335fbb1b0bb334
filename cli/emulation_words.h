/// \file
/// Parses "speed=0.5,memory=1GiB,link=1Gbit" on the command line.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::cli {

/// The parsed emulation.
struct EmulationWords {
  job::Emulation emulation;
  bool speed = false;   ///< A speed was given.
  bool memory = false;  ///< A memory was given.
  bool link = false;    ///< A link was given.
};

/// Parses words, each of which may be a list separated by commas. Errors: kInvalidArgument naming
/// the word.
Result<EmulationWords> ParseEmulation(const std::vector<std::string>& words);

}  // namespace heddle::cli
