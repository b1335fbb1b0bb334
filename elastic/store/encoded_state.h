/// \file
/// The durable facts as text, the same in every store.
#pragma once

#include <string>

#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

/// Version of the text and of how stores keep it; another one is refused by its store.
inline constexpr int kStateVersion = 1;

/// All but generation_counter, which stores keep beside it, as JSON in UTF-8.
std::string EncodeState(const DurableState& state);
/// The reverse; what builds before the newest fields wrote is read, too. `where` names the text in
/// the message. Errors: kDataLoss.
Result<DurableState> DecodeState(const std::string& text, const std::string& where);

}  // namespace heddle::elastic
