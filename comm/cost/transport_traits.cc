#include "comm/cost/transport_traits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace heddle::comm {

namespace {

std::vector<TransportTraits>& Declared() {
  static std::vector<TransportTraits> declared;
  return declared;
}

}  // namespace

DeclaredTransport::DeclaredTransport(TransportTraits traits) {
  std::vector<TransportTraits>& declared = Declared();
  const auto place = std::ranges::lower_bound(declared, traits.rank, {}, &TransportTraits::rank);
  HEDDLE_CHECK(FindTransport(traits.name) == nullptr &&
                   (place == declared.end() || place->rank != traits.rank),
               "two transports are called {} or have its rank", traits.name);
  declared.insert(place, std::move(traits));
}

std::span<const TransportTraits> DeclaredTransports() {
  return Declared();
}

std::vector<std::string> TransportNames() {
  std::vector<std::string> names;
  for (const TransportTraits& traits : Declared()) {
    names.push_back(traits.name);
  }
  return names;
}

const TransportTraits* FindTransport(std::string_view name) {
  const auto found = std::ranges::find(Declared(), name, &TransportTraits::name);
  return found == Declared().end() ? nullptr : &*found;
}

std::string UniversalTransport() {
  const auto found = std::ranges::find(Declared(), true, &TransportTraits::universal);
  return found == Declared().end() ? "" : found->name;
}

Status CheckTransportNames(std::span<const std::string> names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (FindTransport(names[i]) == nullptr) {
      return InvalidArgumentError("'{}' is no transport: there are {}", names[i],
                                  fmt::join(TransportNames(), ", "));
    }
    const auto here = names.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(names.begin(), here, names[i]) != here) {
      return InvalidArgumentError("the transport {} twice", names[i]);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::comm
