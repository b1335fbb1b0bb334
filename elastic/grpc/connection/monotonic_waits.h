/// \file
/// Keeps gRPC's waits independent of changes of the wall clock. gRPC's timers (deadlines of calls,
/// keepalives, bounds of handshakes) wait through Abseil, which in the version of Debian 12 waits
/// until a time of the wall clock: when the clock is set back by an hour, the waits last an hour
/// longer. Later versions of Abseil wait by the monotonic clock.
///
/// A program for x86-64 that links this has a `syscall` function that precedes the C library's.
/// It turns Abseil's wait, a futex with a deadline on the wall clock, into one with the same
/// deadline on the monotonic clock. A jump in the microseconds between Abseil's read of the clock
/// and ours is not noticed. All other calls go to the kernel unchanged, and all results are the
/// kernel's. On other architectures nothing changes.
#pragma once

namespace heddle::elastic {

/// Does nothing; a call of it makes the linker include the `syscall` function.
void KeepWaitsMonotonic();

}  // namespace heddle::elastic
