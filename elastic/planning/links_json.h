/// \file
/// Links between workers as text, in profile files and among what a machine keeps.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

std::string LinksToJson(const wire::Links& links);

/// The links that LinksToJson wrote, between so many workers. Errors: kInvalidArgument naming the
/// key, the place or the figure.
Result<wire::Links> LinksFromJson(std::string_view json, int workers);

}  // namespace heddle::elastic
