/// \file
/// One byte stream over several TCP sockets, for a fast network or one that loses packets, where a
/// single socket's window or core is the limit. The stream is cut into segments; each is written to
/// the first socket that has room for it, so that a slow socket gets fewer. The receiver reads the
/// next segment from its socket directly into the caller's buffer and leaves later segments in
/// their sockets, so that no reordering buffer is needed.
#pragma once

#include <memory>
#include <vector>

#include "base/system/unique_fd.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// The most sockets of one connection.
inline constexpr int kMaxStripes = 8;

/// Makes a connection over two or more connected, non-blocking sockets to one peer, in the same
/// order at both ends. Errors: kResourceExhausted (descriptors).
Result<std::unique_ptr<Connection>> MakeTcpStripes(std::vector<UniqueFd> sockets);

}  // namespace heddle::comm
