/// \file
/// The devices of a job's workers on this machine.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::job {

/// Returns the device of each of the job's workers, by the worker's name, if all of them run on this
/// machine: "cpu", or a card by its number, over which those are spread that leave it open
/// (machine::SpreadDevices). Errors: kInvalidArgument (a worker's device cannot be used), with its
/// name. Thread: any.
Result<std::map<std::string, std::string>> DevicesHere(const JobConfig& job);

}  // namespace heddle::job
