/// \file
/// The address at which other machines reach a port of this one.
#pragma once

#include <string>

namespace heddle::elastic {

/// The HOST:PORT to connect to for a socket that listens at `listen`. A wildcard address (0.0.0.0,
/// ::) is replaced by the source address of this machine's route to other networks, or by loopback
/// if it has none. Sends nothing.
std::string ReachableAddress(const std::string& listen);

/// The line that tells users at which two addresses a coordinator is reached.
std::string AddressLine(const std::string& coordinator, const std::string& metrics);

}  // namespace heddle::elastic
