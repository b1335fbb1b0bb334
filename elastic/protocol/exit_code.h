/// \file
/// What a worker's exit code says to whoever started it.
#pragma once

namespace heddle::elastic {

/// The job still needs this worker, or another in its place: EX_TEMPFAIL of sysexits.h, which
/// schedulers take for "start it again".
inline constexpr int kExitRequeue = 75;

}  // namespace heddle::elastic
