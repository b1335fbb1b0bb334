/// \file
/// The tree of base/yaml/yaml.h, which the parser builds, the reader marks and the emitter prints.
/// Only the yaml*.cc files of this folder include it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace heddle {

/// A position in the file, counted from 1; or an override, whose line is 0 and whose path is
/// `override_path`.
struct YamlPlace {
  int line = 0;
  int column = 0;
  std::string override_path = {};
};

struct YamlNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMapping };
  YamlNode();
  YamlNode(Kind node_kind, YamlPlace node_place);

  Kind kind = Kind::kNull;
  YamlPlace place;
  std::string scalar;
  bool quoted = false;
  /// The absolute path of a scalar that was read as a path; else empty.
  std::string absolute_path;
  std::vector<YamlNode> items;
  struct Entry;
  std::vector<Entry> entries;
  /// Mapping: whether a reader opened it.
  bool opened = false;
  /// Mapping: the keys that readers asked for.
  std::set<std::string, std::less<>> asked;
  /// Mapping: required keys that are missing, with what was expected.
  std::vector<std::pair<std::string, std::string>> missing;
};

struct YamlNode::Entry {
  std::string key;
  YamlPlace place;
  YamlNode value;
};

// Not in the class, where Entry is not complete yet.
inline YamlNode::YamlNode() = default;
inline YamlNode::YamlNode(Kind node_kind, YamlPlace node_place)
    : kind(node_kind),
      place(std::move(node_place)) {}

struct YamlProblem {
  YamlPlace place;
  std::string text;  // "path: message"
  std::string hint = {};
};

struct YamlState {
  std::string filename;
  YamlNode root;
  std::vector<YamlProblem> problems;

  void Note(const YamlPlace& place,
            const std::string& path,
            const std::string& message,
            const std::string& hint = "");
};

/// Builds the tree. Problems that still leave a tree (duplicates, anchors, nulls as keys) are
/// recorded in `state`. Errors: kInvalidArgument (text that cannot be parsed), with the position.
Status ParseYamlText(std::string_view text, YamlState& state, YamlNode& root);

/// Applies an override "key.path=value".
Status ApplyYamlOverride(std::string_view override_text, YamlState& state);

/// The entry of a mapping; null: it is missing.
YamlNode::Entry* FindEntry(YamlNode& mapping, std::string_view key);

/// The item of a list at the decimal index `number`; null: it is missing.
YamlNode* FindItem(YamlNode& list, std::string_view number);

/// The position of the node at `path` ("a.b.1"), or of the nearest one above it that exists.
YamlPlace PlaceOf(YamlNode& root, std::string_view path);

/// The text of a problem: "FILE:LINE:COL: error: text" or "--set PATH: error: text", with the hint
/// on a line of its own.
std::string FormatYamlProblem(const std::string& filename, const YamlProblem& problem);

/// The description of a node in messages: "'500'", "a list", "a mapping", "nothing".
std::string DescribeYamlNode(const YamlNode& node);

/// The nearest of `candidates` by edit distance; empty: none is near enough.
std::string NearestName(std::string_view word, const std::vector<std::string_view>& candidates);

/// The path "outer.key"; the key alone if `outer` is empty.
std::string JoinYamlPath(const std::string& outer, std::string_view key);

}  // namespace heddle
