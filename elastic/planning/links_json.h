/// \file
/// Measured links as JSON, for profile files and a machine's kept measurements.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

std::string LinksToJson(const wire::Links& links);

/// Reads what LinksToJson wrote, for `workers` workers. Errors: kInvalidArgument naming the
/// malformed key, place or figure.
Result<wire::Links> LinksFromJson(std::string_view json, int workers);

}  // namespace heddle::elastic
