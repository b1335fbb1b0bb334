/// \file
/// The only file that includes yaml-cpp. It listens to the parser's events rather than building
/// yaml-cpp's own nodes, because those accept duplicate keys, resolve anchors and lose the places
/// of empty values.
#include <algorithm>
#include <sstream>

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/emitterstyle.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "base/yaml/yaml.h"
#include "base/yaml/yaml_tree.h"

namespace heddle {
namespace {

using Kind = YamlNode::Kind;

/// Thrown through yaml-cpp by our own event handler, never out of this file: events have no other
/// way to stop the parser, and going on after a hostile nesting would cost memory.
struct StopParsing {
  YamlPlace place;
  std::string message;
};

const YamlPlace kStart{.line = 1, .column = 1};

YamlPlace PlaceOf(const YAML::Mark& mark) {
  return {.line = mark.line + 1, .column = mark.column + 1};
}

/// Builds a tree of YamlNode. `stack_` holds the open collections with the key that waits for a
/// value.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(YamlState& state) : state_(state) {}
  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Note(PlaceOf(mark), "an alias is not allowed", "write the value out");
    Add(Scalar(mark, "*"));
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    CheckAnchor(mark, anchor);
    Add(YamlNode(Kind::kNull, PlaceOf(mark)));
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override {
    CheckAnchor(mark, anchor);
    CheckTag(mark, tag);
    YamlNode node = Scalar(mark, value);
    node.quoted = tag == "!";
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, Kind::kMapping);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    YamlNode node;
    bool has_key = false;
    std::string key;
    YamlPlace key_place;
  };

  static YamlNode Scalar(const YAML::Mark& mark, const std::string& text) {
    YamlNode node(Kind::kScalar, PlaceOf(mark));
    node.scalar = text;
    return node;
  }

  std::string Path() const {
    std::string path;
    for (const Level& level : stack_) {
      if (level.has_key) {
        path = JoinYamlPath(path, level.key);
      } else if (level.node.kind == Kind::kList) {
        path = JoinYamlPath(path, std::to_string(level.node.items.size()));
      }
    }
    return path;
  }

  void Note(const YamlPlace& place, const std::string& message, const std::string& hint) {
    state_.Note(place, Path(), message, hint);
  }
  void CheckAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      Note(PlaceOf(mark), "an anchor is not allowed", "write the value out where it is needed");
    }
  }
  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      Note(PlaceOf(mark), "a tag is not allowed, got '" + tag + "'", "remove the tag");
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    CheckAnchor(mark, anchor);
    CheckTag(mark, tag);
    if (stack_.size() >= static_cast<size_t>(YamlDocument::kDepthMax)) {
      // lint: allow throw: see StopParsing
      throw StopParsing{PlaceOf(mark),
                        fmt::format("nested deeper than {} levels", YamlDocument::kDepthMax)};
    }
    if (!stack_.empty() && stack_.back().node.kind == Kind::kMapping && !stack_.back().has_key) {
      // lint: allow throw: see StopParsing
      throw StopParsing{PlaceOf(mark), "a key must be a plain word"};
    }
    stack_.emplace_back().node = YamlNode(kind, PlaceOf(mark));
  }
  void Close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    Add(std::move(node));
  }

  void Add(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = stack_.back();
    if (level.node.kind == Kind::kList) {
      level.node.items.push_back(std::move(node));
    } else if (!level.has_key) {
      if (node.kind != Kind::kScalar || node.scalar.empty()) {
        // lint: allow throw: see StopParsing
        throw StopParsing{node.place, "a key must be a plain word"};
      }
      level.key = std::move(node.scalar);
      level.key_place = node.place;
      level.has_key = true;
      if (level.key == "<<" && !node.quoted) {
        Note(node.place, "a merge key is not allowed", "write the keys out");
      }
    } else {
      AddEntry(level, std::move(node));
      level.has_key = false;
    }
  }
  void AddEntry(Level& level, YamlNode node) {
    if (const YamlNode::Entry* first = FindEntry(level.node, level.key); first != nullptr) {
      Note(level.key_place, "duplicate key",
           fmt::format("first set at line {}", first->place.line));
      return;
    }
    if (node.kind == Kind::kNull) {
      node.place = level.key_place;  // yaml-cpp gives an empty value no place of its own
    }
    level.node.entries.push_back(
        {.key = level.key, .place = level.key_place, .value = std::move(node)});
  }

  YamlState& state_;
  YamlNode root_;
  std::vector<Level> stack_;
};

Status SyntaxError(const YamlState& state, const YamlPlace& place, const std::string& message) {
  return {StatusCode::kInvalidArgument,
          FormatYamlProblem(state.filename, {.place = place, .text = message})};
}

/// Gives a whole subtree the place of the override that made it.
void SetPlace(YamlNode& node, const YamlPlace& place) {
  node.place = place;
  for (YamlNode& item : node.items) {
    SetPlace(item, place);
  }
  for (YamlNode::Entry& entry : node.entries) {
    entry.place = place;
    SetPlace(entry.value, place);
  }
}

/// The child of `node` that a step of an override's path names, made when a mapping lacks it;
/// nullptr when there can be none.
YamlNode* Descend(YamlNode& node, std::string_view step, const YamlPlace& place) {
  if (node.kind == Kind::kNull) {
    node.kind = Kind::kMapping;
    node.place = place;
  }
  if (node.kind == Kind::kList) {
    return FindItem(node, step);
  }
  if (node.kind != Kind::kMapping) {
    return nullptr;
  }
  if (YamlNode::Entry* entry = FindEntry(node, step); entry != nullptr) {
    return &entry->value;
  }
  node.entries.push_back(
      {.key = std::string(step), .place = place, .value = YamlNode(Kind::kNull, place)});
  return &node.entries.back().value;
}

}  // namespace

Status ParseYamlText(std::string_view text, YamlState& state, YamlNode& root) {
  if (static_cast<int64_t>(text.size()) > YamlDocument::kBytesMax) {
    return InvalidArgumentError("{}: {} bytes, at most {} are read", state.filename, text.size(),
                                YamlDocument::kBytesMax);
  }
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(nul), '\n');
    return SyntaxError(state, {.line = static_cast<int>(line), .column = 1},
                       "a NUL byte: this is not a text file");
  }
  try {
    std::istringstream input{std::string(text)};
    YAML::Parser parser(input);
    TreeBuilder builder(state);
    if (!parser.HandleNextDocument(builder)) {
      root = YamlNode(Kind::kNull, kStart);
      return Status::Ok();
    }
    root = builder.Take();
    TreeBuilder second(state);
    if (parser.HandleNextDocument(second)) {
      return SyntaxError(state, second.Take().place, "a second document: one a file is allowed");
    }
  } catch (const StopParsing& stop) {
    return SyntaxError(state, stop.place, stop.message);
  } catch (const YAML::Exception& error) {
    return SyntaxError(state, error.mark.is_null() ? kStart : PlaceOf(error.mark), error.msg);
  } catch (const std::exception& error) {
    return SyntaxError(state, kStart, error.what());
  }
  return Status::Ok();
}

Status ApplyYamlOverride(std::string_view override_text, YamlState& state) {
  const size_t equals = override_text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidArgumentError("--set {}: expected KEY.PATH=VALUE", override_text);
  }
  const std::string path(override_text.substr(0, equals));
  const YamlPlace place{.line = 0, .column = 0, .override_path = path};

  YamlState scratch;
  YamlNode value;
  const Status parsed = ParseYamlText(override_text.substr(equals + 1), scratch, value);
  if (!parsed.ok() || !scratch.problems.empty()) {
    return InvalidArgumentError("--set {}: '{}' is not a YAML value", path,
                                override_text.substr(equals + 1));
  }
  SetPlace(value, place);

  YamlNode* node = &state.root;
  std::string_view rest = path;
  std::string walked;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view step = rest.substr(0, dot);
    YamlNode* child = step.empty() ? nullptr : Descend(*node, step, place);
    if (child == nullptr) {
      return InvalidArgumentError("--set {}: {} is {}, which has no '{}'", path,
                                  walked.empty() ? "the document" : walked, DescribeYamlNode(*node),
                                  step);
    }
    walked = JoinYamlPath(walked, step);
    node = child;
    if (dot == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(dot + 1);
  }
  *node = std::move(value);
  return Status::Ok();
}

}  // namespace heddle
