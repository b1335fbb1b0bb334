/// \file
/// Checks where a converted model may be written.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::checkpoint {

/// Checks that nothing is at `target` or, with `overwrite`, that it is a model and nothing else: a
/// file that opens as a model, or a folder with only files that the formats write. A folder with
/// other files (a tokenizer, notes), which would be lost, is refused; the error names one. Also
/// checks that neither of `source` and `target` is inside the other. Errors: kAlreadyExists,
/// kInvalidArgument.
Status CheckTarget(const std::string& source, const std::string& target, bool overwrite);

}  // namespace heddle::checkpoint
