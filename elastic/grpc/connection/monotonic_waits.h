/// \file
/// Waits that a set clock does not stretch. gRPC's timers (deadlines of calls, keepalives, bounds
/// of handshakes) wait through Abseil, whose waits end at a time of the wall clock in the version
/// of Debian 12: set back by an hour, they last an hour longer, and so does everything that these
/// timers bound. Later versions of Abseil wait by the monotonic clock.
///
/// A program for x86-64 that links this has a `syscall` of its own before the C library's. Abseil's
/// way to wait, a futex until a time of the wall clock, becomes a wait until the same moment of the
/// monotonic clock; a jump in the microseconds between Abseil's look at the clock and ours is not
/// noticed. All else goes to the kernel as it came, and all results are the kernel's. Elsewhere the
/// waits stay as they are.
#pragma once

namespace heddle::elastic {

/// Does nothing: whoever calls it has the above linked.
void KeepWaitsMonotonic();

}  // namespace heddle::elastic
