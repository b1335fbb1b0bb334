/// \file
/// Messages with open file descriptors on a local socket.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle::comm {

/// The most descriptors of one message.
inline constexpr size_t kMaxDescriptors = 3;

/// Sends `bytes`, at least one, with `descriptors`, as a whole or not at all; never blocks. The
/// caller keeps the descriptors. Errors: kResourceExhausted (too many descriptors are in flight;
/// the message names the limit to raise), those of the socket.
Status SendDescriptors(int socket,
                       std::span<const std::byte> bytes,
                       std::span<const int> descriptors);

/// Receives a message of SendDescriptors; false: none has arrived yet. The message must have
/// exactly as many bytes and descriptors; otherwise its descriptors are closed. Errors:
/// kUnavailable (the peer has closed the socket), kDataLoss (another number of bytes or
/// descriptors), kResourceExhausted (no descriptors left in this process), those of the socket.
Result<bool> ReceiveDescriptors(int socket,
                                std::span<std::byte> bytes,
                                std::span<UniqueFd> descriptors);

}  // namespace heddle::comm
