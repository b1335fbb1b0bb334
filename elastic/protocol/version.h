/// \file
/// Which control protocol this build speaks.
#pragma once

#include <cstdint>

namespace heddle::elastic {

/// A worker and a coordinator of unlike versions refuse each other. Raised with every change of
/// protocol.proto that an older end would misread.
inline constexpr int32_t kProtocolVersion = 10;

}  // namespace heddle::elastic
