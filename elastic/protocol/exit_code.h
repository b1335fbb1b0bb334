/// \file
/// Exit codes of a worker that its launcher or scheduler acts on.
#pragma once

namespace heddle::elastic {

/// The job still needs this worker, or another in its place. It is EX_TEMPFAIL of sysexits.h, which
/// schedulers take for "start it again".
inline constexpr int kExitRequeue = 75;

}  // namespace heddle::elastic
