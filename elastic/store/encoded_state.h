/// \file
/// The coordinator's durable state as text, the same in every store.
#pragma once

#include <string>

#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

/// The version of the text and of how stores keep it. A store refuses to read another version.
inline constexpr int kStateVersion = 1;

/// Encodes all but generation_counter, which stores keep beside the text, as JSON in UTF-8.
std::string EncodeState(const DurableState& state);
/// Decodes the text of EncodeState, also that of older builds without the newest fields. `where`
/// names the source in error messages. Errors: kDataLoss.
Result<DurableState> DecodeState(const std::string& text, const std::string& where);

}  // namespace heddle::elastic
