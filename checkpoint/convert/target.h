/// \file
/// Where a converted model may be written.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::checkpoint {

/// `target` is free; or, with `overwrite`, holds a model and nothing else: a file that opens as
/// one, or a folder of none but the files that the formats write. Whatever else a folder holds (a
/// tokenizer, notes) would be lost, so it is refused by name. Neither of `source` and `target` lies
/// inside the other. Errors: kAlreadyExists, kInvalidArgument.
Status CheckTarget(const std::string& source, const std::string& target, bool overwrite);

}  // namespace heddle::checkpoint
