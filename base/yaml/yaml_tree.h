/// \file
/// The tree behind base/yaml/yaml.h: what the parser makes, the reader marks and the emitter
/// prints. Only the yaml*.cc files of this folder include it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace heddle {

/// A place in the file, counted from 1; or an override, whose line is 0 and which stands in `text`.
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
  /// Set when the scalar was read as a path: the path seen from the root of the file system.
  std::string absolute_path;
  std::vector<YamlNode> items;
  struct Entry;
  std::vector<Entry> entries;
  /// Mapping: a reader looked at it, and asked for these keys.
  bool opened = false;
  std::set<std::string, std::less<>> asked;
  /// Mapping: required keys that were not there, with what was expected.
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

/// Builds the tree; problems that leave a tree (duplicates, anchors, nulls as keys) are noted in
/// `state`. Errors: kInvalidArgument for text without a tree, with its position.
Status ParseYamlText(std::string_view text, YamlState& state, YamlNode& root);

/// Applies one "key.path=value".
Status ApplyYamlOverride(std::string_view override_text, YamlState& state);

/// The entry of a mapping, or nullptr.
YamlNode::Entry* FindEntry(YamlNode& mapping, std::string_view key);

/// The item of a list at the decimal `number`, or nullptr.
YamlNode* FindItem(YamlNode& list, std::string_view number);

/// The place of the node at "a.b.1", or of the nearest one above it that exists.
YamlPlace PlaceOf(YamlNode& root, std::string_view path);

/// "FILE:LINE:COL: error: text" or "--set PATH: error: text", and the hint on a line of its own.
std::string FormatYamlProblem(const std::string& filename, const YamlProblem& problem);

/// What the node is in messages: "'500'", "a list", "a mapping", "nothing".
std::string DescribeYamlNode(const YamlNode& node);

/// The nearest of `candidates` by edit distance; empty when none is near enough to be meant.
std::string NearestName(std::string_view word, const std::vector<std::string_view>& candidates);

/// "outer.key", or the key alone at the root.
std::string JoinYamlPath(const std::string& outer, std::string_view key);

}  // namespace heddle
