/// \file
/// The version of the control protocol that this build speaks.
#pragma once

#include <cstdint>

namespace heddle::elastic {

/// A worker and a coordinator of different versions refuse each other. The version is raised with
/// every change of protocol.proto that an older end would misread.
inline constexpr int32_t kProtocolVersion = 11;

}  // namespace heddle::elastic
