/// \file
/// The address by which others reach what listens here.
#pragma once

#include <string>

namespace heddle::elastic {

/// Where others connect to, of a socket that listens at `listen` (HOST:PORT): that itself, and for
/// all addresses of a machine (0.0.0.0, ::) the one at which its route to other networks begins;
/// loopback where it has no such route. Sends nothing.
std::string ReachableAddress(const std::string& listen);

/// What people are told of a coordinator that listens at these two.
std::string AddressLine(const std::string& coordinator, const std::string& metrics);

}  // namespace heddle::elastic
