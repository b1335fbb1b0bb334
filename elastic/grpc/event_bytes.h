/// \file
/// A part of a job's log, events.jsonl, as the coordinator sends it.
#pragma once

#include <string>

namespace heddle::elastic {

struct EventBytes {
  std::string text;    ///< Bytes of the log, at most a MiB; empty: there is no more yet.
  std::string job_id;  ///< The job whose log this is.
};

}  // namespace heddle::elastic
