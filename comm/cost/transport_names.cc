#include "comm/cost/transport_names.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::comm {

std::span<const std::string_view> TransportNames() {
  static constexpr std::string_view kNames[] = {"shm", "verbs", "tcp"};
  return kNames;
}

Status CheckTransportNames(std::span<const std::string> names) {
  const auto known = TransportNames();
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(known.begin(), known.end(), names[i]) == known.end()) {
      return InvalidArgumentError("'{}' is no transport: there are {}", names[i],
                                  fmt::join(known, ", "));
    }
    const auto here = names.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(names.begin(), here, names[i]) != here) {
      return InvalidArgumentError("the transport {} twice", names[i]);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::comm
