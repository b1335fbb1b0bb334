#include "elastic/protocol/link_figures.h"

#include <algorithm>

namespace heddle::elastic {
namespace {

// What a worker measured of one transport; null when it does not join the two.
const wire::LinksMeasured::Link* Find(const wire::LinksMeasured& answer, const std::string& name) {
  const auto found =
      std::find_if(answer.links().begin(), answer.links().end(), [&](const auto& link) {
        return link.transport() == name && link.error().empty() &&
               IsLinkSound(link.latency_seconds(), link.bytes_per_second());
      });
  return found == answer.links().end() ? nullptr : &*found;
}

}  // namespace

std::vector<wire::Links::Transport> JoinAnswers(const wire::LinksMeasured& there,
                                                const wire::LinksMeasured& back,
                                                const std::vector<std::string>& transports) {
  std::vector<wire::Links::Transport> joined;
  for (const std::string& name : transports) {
    const auto* to = Find(there, name);
    const auto* from = Find(back, name);
    if (to != nullptr && from != nullptr) {
      wire::Links::Transport& transport = joined.emplace_back();
      transport.set_name(name);
      transport.set_latency_seconds(to->latency_seconds());
      transport.set_bytes_per_second(to->bytes_per_second());
      transport.set_back_latency_seconds(from->latency_seconds());
      transport.set_back_bytes_per_second(from->bytes_per_second());
    }
  }
  return joined;
}

void AddPair(int32_t a,
             int32_t b,
             const std::vector<wire::Links::Transport>& transports,
             wire::Links& links) {
  wire::Links::Pair& pair = *links.add_pairs();
  pair.set_a(std::min(a, b));
  pair.set_b(std::max(a, b));
  for (const wire::Links::Transport& transport : transports) {
    wire::Links::Transport& entry = *pair.add_transports();
    entry = transport;
    if (a > b) {
      entry.set_latency_seconds(transport.back_latency_seconds());
      entry.set_bytes_per_second(transport.back_bytes_per_second());
      entry.set_back_latency_seconds(transport.latency_seconds());
      entry.set_back_bytes_per_second(transport.bytes_per_second());
    }
  }
}

}  // namespace heddle::elastic
