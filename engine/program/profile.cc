#include "engine/program/profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <tuple>

#include "engine/graph/operator.h"

namespace heddle::program {

namespace {

// Passes over memory for one byte of the gradient or value, when the rate was not measured: a fold
// reads two and writes one, a copy reads one and writes one, an update reads gradient, master and
// two moments and writes the latter three.
double Passes(std::string_view what) {
  if (what == "fold") {
    return 3;
  }
  return what == "update" ? 7 : 2;
}

std::vector<graph::TensorType> TypesOf(const graph::Graph& graph,
                                       const std::vector<graph::TensorId>& tensors) {
  std::vector<graph::TensorType> types;
  types.reserve(tensors.size());
  for (const graph::TensorId tensor : tensors) {
    types.push_back(graph.tensor(tensor).type);
  }
  return types;
}

/// A signature without its extents, and these. What has one form differs in extents alone.
struct Extents {
  std::string form;
  std::vector<int64_t> values;
};

/// Numbers are extents unless they belong to a name, as in "bf16" and "kv_2".
Extents ExtentsOf(std::string_view signature) {
  constexpr size_t kMostDigits = 18;
  Extents extents;
  bool in_name = false;
  for (size_t i = 0; i < signature.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < signature.size() && std::isdigit(static_cast<unsigned char>(signature[at])) != 0;
    };
    if (!in_name && is_digit(i)) {
      const size_t begin = i;
      while (is_digit(i + 1)) {
        ++i;
      }
      if (i + 1 - begin <= kMostDigits) {
        extents.values.push_back(std::stoll(std::string(signature.substr(begin, i + 1 - begin))));
      }
      extents.form += '#';
      continue;
    }
    const auto c = static_cast<unsigned char>(signature[i]);
    in_name = std::isalnum(c) != 0 || c == '_';
    extents.form += signature[i];
  }
  return extents;
}

/// A measured node that is as the wanted one but for its size.
struct Sized {
  double size = 0;  ///< Over that of the wanted one.
  double seconds = 0;
};

/// How two nodes of one form differ: in some extents, and in these by about one factor.
struct Difference {
  std::vector<size_t> extents;  ///< Those that differ.
  double size = 1;              ///< Factor from the wanted one to the measured one.
  double rounding = 1;          ///< By how much the extents' factors differ, at least 1.
};

/// Nothing: they differ by factors that are no rounding of one, or in nothing.
std::optional<Difference> DifferenceOf(const std::vector<int64_t>& measured,
                                       const std::vector<int64_t>& wanted) {
  constexpr double kMostRounding = 1.34;  // Three heads for two and a quarter.
  Difference difference;
  double least = 0;
  double most = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (measured[i] == wanted[i]) {
      continue;
    }
    if (measured[i] == 0 || wanted[i] == 0) {
      return std::nullopt;
    }
    const double factor = static_cast<double>(measured[i]) / static_cast<double>(wanted[i]);
    least = difference.extents.empty() ? factor : std::min(least, factor);
    most = difference.extents.empty() ? factor : std::max(most, factor);
    difference.extents.push_back(i);
  }
  if (difference.extents.empty() || most > kMostRounding * least || (least < 1 && most > 1)) {
    return std::nullopt;
  }
  difference.size = most > 1 ? most : least;
  difference.rounding = most / least;
  return difference;
}

/// Seconds of a node of size 1 on the line through two others; in proportion to the nearest if that
/// line is no time.
double OnLine(Sized a, Sized b) {
  if (std::abs(std::log(b.size)) < std::abs(std::log(a.size))) {
    std::swap(a, b);
  }
  const double step = b.size - a.size;
  const double seconds = step == 0 ? 0 : a.seconds + (b.seconds - a.seconds) / step * (1 - a.size);
  return seconds > 0 ? seconds : a.seconds / a.size;
}

/// The measured nodes that are nearest in size to the wanted one.
struct Neighbours {
  std::vector<Sized> smaller;  ///< The nearest first; two at most.
  std::vector<Sized> larger;
  double rounding = 1;  ///< The most of their differences.

  static void Add(std::vector<Sized>& side, const Sized& found) {
    side.push_back(found);
    std::ranges::sort(side, {}, [](const Sized& s) { return std::abs(std::log(s.size)); });
    side.resize(std::min<size_t>(side.size(), 2));
  }
  void Add(const Difference& difference, double seconds) {
    Add(difference.size > 1 ? larger : smaller, {.size = difference.size, .seconds = seconds});
    rounding = std::max(rounding, difference.rounding);
  }

  size_t count() const { return smaller.size() + larger.size(); }
  double Seconds() const {
    if (!smaller.empty() && !larger.empty()) {
      return OnLine(smaller[0], larger[0]);
    }
    const std::vector<Sized>& side = smaller.empty() ? larger : smaller;
    return side.size() == 2 ? OnLine(side[0], side[1]) : side[0].seconds / side[0].size;
  }
};

/// Seconds of a node that was not measured, from measured ones that differ from it by a share: in
/// one or more extents, all by one factor. Nothing: there are none.
std::optional<double> SecondsOfShare(const std::map<std::string, double>& seconds,
                                     const std::string& signature) {
  const Extents wanted = ExtentsOf(signature);
  std::map<std::vector<size_t>, Neighbours> found;  // By the extents that differ.
  for (const auto& [measured, taken] : seconds) {
    if (!measured.starts_with(signature.substr(0, signature.find('(') + 1))) {
      continue;
    }
    const Extents extents = ExtentsOf(measured);
    if (extents.form != wanted.form || extents.values.size() != wanted.values.size()) {
      continue;
    }
    if (const auto difference = DifferenceOf(extents.values, wanted.values)) {
      found[difference->extents].Add(*difference, taken);
    }
  }
  const auto best = std::ranges::min_element(found, {}, [](const auto& entry) {
    const Neighbours& neighbours = entry.second;
    return std::tuple(neighbours.count() < 2, neighbours.rounding, entry.first.size());
  });
  return best == found.end() ? std::nullopt : std::optional(best->second.Seconds());
}

}  // namespace

double WorkerProfile::Seconds(const graph::Graph& graph, const graph::Node& node) const {
  const std::string signature = graph::NodeSignature(graph, node);
  const auto measured = seconds.find(signature);
  if (measured != seconds.end()) {
    return measured->second;
  }
  if (const auto share = SecondsOfShare(seconds, signature)) {
    return *share;
  }
  const graph::Cost cost =
      node.op->CostOf(TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes);
  const double arithmetic = flops_per_second > 0 ? cost.flops / flops_per_second : 0;
  const double memory = bytes_per_second > 0 ? cost.bytes / bytes_per_second : 0;
  return std::max(arithmetic, memory);
}

double WorkerProfile::ByteSeconds(std::string_view what, int64_t bytes) const {
  const auto measured = seconds.find(std::string(what));
  if (measured != seconds.end()) {
    return measured->second * static_cast<double>(bytes);
  }
  return bytes_per_second > 0 ? Passes(what) * static_cast<double>(bytes) / bytes_per_second : 0;
}

}  // namespace heddle::program
