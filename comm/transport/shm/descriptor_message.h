/// \file
/// Messages with open file descriptors on a local socket.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle::comm {

/// Of one message.
inline constexpr size_t kMostDescriptors = 3;

/// Sends `bytes`, at least one, with `descriptors`, whole or not at all; never blocks. The caller
/// keeps the descriptors. Errors: kResourceExhausted (too many are on their way; says what to
/// raise), those of the socket.
Status SendDescriptors(int socket,
                       std::span<const std::byte> bytes,
                       std::span<const int> descriptors);

/// The counterpart; false when nothing has come yet. The message must have just this form: what
/// else came with it is closed. Errors: kUnavailable (the peer has closed the socket), kDataLoss
/// (another form), kResourceExhausted (no descriptors are left here), those of the socket.
Result<bool> ReceiveDescriptors(int socket,
                                std::span<std::byte> bytes,
                                std::span<UniqueFd> descriptors);

}  // namespace heddle::comm
