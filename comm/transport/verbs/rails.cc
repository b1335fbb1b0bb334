#include "comm/transport/verbs/rails.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "comm/transport/transport.h"

namespace heddle::comm {

namespace {

constexpr size_t kMaxNameBytes = 80;  // An address of IPv6 with its port has 47.

struct Candidate {
  RailPair pair;
  double bytes_per_second = 0;
  int near = 0;  ///< Number of ends that are near their processors.

  auto rank() const { return std::pair(-bytes_per_second, -near); }
};

bool IsPlain(std::string_view text) {
  return text.size() <= kMaxNameBytes && std::all_of(text.begin(), text.end(), [](char letter) {
           return letter > ' ' && letter < 0x7F && letter != ';' && letter != '=';
         });
}

std::optional<RdmaKind> KindNamed(std::string_view name) {
  for (const RdmaKind kind : {RdmaKind::kInfiniBand, RdmaKind::kRoce, RdmaKind::kIwarp}) {
    if (RdmaKindName(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
}

/// Takes what stands before the next `separator`, or all.
std::string_view Take(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return taken;
}

std::optional<Rail> ParseRail(std::string_view text) {
  const auto kind = KindNamed(Take(text, '/'));
  const std::string_view speed = Take(text, '/');
  const std::string_view place = Take(text, '/');
  const std::string_view network = Take(text, '/');
  uint64_t bytes_per_second = 0;
  const auto parsed = std::from_chars(speed.data(), speed.data() + speed.size(), bytes_per_second);
  if (!kind.has_value() || parsed.ec != std::errc() || parsed.ptr != speed.data() + speed.size() ||
      (place != "near" && place != "far") || !IsPlain(network) || !IsPlain(text) ||
      text.find(':') == std::string_view::npos || text.find('/') != std::string_view::npos) {
    return std::nullopt;
  }
  return Rail{.kind = *kind,
              .bytes_per_second = static_cast<double>(bytes_per_second),
              .near = place == "near",
              .network = std::string(network),
              .listener = std::string(text)};
}

/// Pairs that may be able to talk.
std::vector<Candidate> Joined(std::span<const Rail> own, std::span<const Rail> peer) {
  std::vector<Candidate> neighbours;
  std::vector<Candidate> all;
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t k = 0; k < peer.size(); ++k) {
      if (own[i].kind != peer[k].kind) {
        continue;
      }
      all.push_back(
          {.pair = {.own = i, .peer = k},
           .bytes_per_second = std::min(own[i].bytes_per_second, peer[k].bytes_per_second),
           .near = static_cast<int>(own[i].near) + static_cast<int>(peer[k].near)});
      if (!own[i].network.empty() && own[i].network == peer[k].network) {
        neighbours.push_back(all.back());
      }
    }
  }
  return neighbours.empty() ? all : neighbours;
}

/// The candidate that `number` chooses among the best: first the own rail, then the peer's.
RailPair First(const std::vector<Candidate>& candidates, size_t number) {
  const auto best =
      std::min_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
        return a.rank() < b.rank();
      })->rank();
  std::vector<size_t> own;
  for (const Candidate& candidate : candidates) {
    if (candidate.rank() == best && (own.empty() || own.back() != candidate.pair.own)) {
      own.push_back(candidate.pair.own);
    }
  }
  const size_t chosen = own[number % own.size()];
  std::vector<RailPair> pairs;
  for (const Candidate& candidate : candidates) {
    if (candidate.rank() == best && candidate.pair.own == chosen) {
      pairs.push_back(candidate.pair);
    }
  }
  return pairs[number % pairs.size()];
}

}  // namespace

std::string FormatRails(std::span<const Rail> rails) {
  std::string text;
  for (const Rail& rail : rails) {
    text +=
        fmt::format("{}{}/{:.0f}/{}/{}/{}", text.empty() ? "" : ",", RdmaKindName(rail.kind),
                    rail.bytes_per_second, rail.near ? "near" : "far", rail.network, rail.listener);
  }
  return text;
}

Result<std::vector<Rail>> ParseRails(std::string_view text) {
  std::vector<Rail> rails;
  do {
    const auto rail = ParseRail(Take(text, ','));
    if (!rail.has_value() || rails.size() == kMaxRails) {
      return InvalidArgumentError("its RDMA ports have another form");
    }
    rails.push_back(*rail);
  } while (!text.empty());
  return rails;
}

std::vector<RailPair> ChooseRails(std::span<const Rail> own,
                                  std::span<const Rail> peer,
                                  size_t number,
                                  std::span<const RailPair> avoid) {
  std::vector<Candidate> candidates = Joined(own, peer);
  const auto is_avoided = [&](const Candidate& candidate) {
    return std::find(avoid.begin(), avoid.end(), candidate.pair) != avoid.end();
  };
  const bool all_avoided = std::all_of(candidates.begin(), candidates.end(), is_avoided);
  if (!all_avoided) {
    std::erase_if(candidates, is_avoided);
  }
  const size_t most = all_avoided ? 1 : kMaxRoutes;
  std::vector<RailPair> chosen;
  const auto key = [&](const Candidate& candidate) {
    const auto& [i, k] = candidate.pair;
    size_t uses = 0;
    for (const RailPair& tried : chosen) {
      uses += static_cast<size_t>(tried.own == i) + static_cast<size_t>(tried.peer == k);
    }
    const RailPair& first = chosen.front();
    return std::tuple(uses, candidate.rank(), (i + own.size() - first.own) % own.size(),
                      (k + peer.size() - first.peer) % peer.size());
  };
  while (!candidates.empty() && chosen.size() < most) {
    const RailPair next =
        chosen.empty()
            ? First(candidates, number)
            : std::min_element(candidates.begin(), candidates.end(),
                               [&](const auto& a, const auto& b) { return key(a) < key(b); })
                  ->pair;
    chosen.push_back(next);
    std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.pair == next; });
  }
  return chosen;
}

}  // namespace heddle::comm
