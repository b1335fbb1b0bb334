/// \file
/// One byte stream over several TCP sockets: on a fast network, or one that loses packets, a single
/// socket's window or core is the limit. The stream is cut into segments; each goes to the first
/// socket that has room for it, so that a slow one gets less. The receiver takes the segment that
/// is due straight from its socket into the caller's buffer and leaves those that are early in
/// theirs: nothing is put in order in memory.
#pragma once

#include <memory>
#include <vector>

#include "base/system/unique_fd.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Sockets of one connection, at most.
inline constexpr int kMostStripes = 8;

/// Over connected, non-blocking sockets whose other ends are one peer's, in the same order; two or
/// more. Errors: kResourceExhausted (descriptors).
Result<std::unique_ptr<Connection>> MakeTcpStripes(std::vector<UniqueFd> sockets);

}  // namespace heddle::comm
