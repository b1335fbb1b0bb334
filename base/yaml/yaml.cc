#include "base/yaml/yaml.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/system/file.h"
#include "base/yaml/yaml_tree.h"

namespace heddle {
namespace {

using Kind = YamlNode::Kind;

constexpr size_t kProblemsMax = 20;

/// Levenshtein's distance with one row of the table; a key is short, so the product of lengths is
/// too.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// "did you mean 'steps'?", or the list of what is known.
std::string SuggestKey(std::string_view word, const std::vector<std::string_view>& known) {
  if (const std::string nearest = NearestName(word, known); !nearest.empty()) {
    return fmt::format("did you mean '{}'?", nearest);
  }
  return known.empty() ? "" : fmt::format("known keys: {}", fmt::join(known, ", "));
}

/// Every key that no reader asked for, in the mappings that a reader looked at; then what is
/// missing.
void NoteUnknownKeys(YamlState& state, const YamlNode& node, const std::string& path) {
  const std::vector<std::string_view> asked(node.asked.begin(), node.asked.end());
  std::set<std::string> meant;
  for (const YamlNode::Entry& entry : node.entries) {
    const std::string entry_path = JoinYamlPath(path, entry.key);
    if (node.opened && !node.asked.contains(entry.key)) {
      meant.insert(NearestName(entry.key, asked));
      state.Note(entry.place, entry_path, "unknown key", SuggestKey(entry.key, asked));
    } else {
      NoteUnknownKeys(state, entry.value, entry_path);
    }
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    NoteUnknownKeys(state, node.items[i], JoinYamlPath(path, std::to_string(i)));
  }
  // A required key that is there, misspelt, is one problem and not two.
  for (const auto& [key, expected] : node.missing) {
    if (!meant.contains(key)) {
      state.Note(node.place, JoinYamlPath(path, key), "missing, expected " + expected);
    }
  }
}

}  // namespace

// ---- The tree's helpers.

YamlNode::Entry* FindEntry(YamlNode& mapping, std::string_view key) {
  const auto found = std::find_if(mapping.entries.begin(), mapping.entries.end(),
                                  [&](const YamlNode::Entry& entry) { return entry.key == key; });
  return found == mapping.entries.end() ? nullptr : &*found;
}

YamlNode* FindItem(YamlNode& list, std::string_view number) {
  size_t index = 0;
  const char* end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, index);
  const bool found = error == std::errc() && rest == end && index < list.items.size();
  return found ? &list.items[index] : nullptr;
}

std::string NearestName(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr size_t kLongest = 64;  // a longer word is no misspelling, and the distance is quadratic
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  if (word.size() > kLongest) {
    return best;
  }
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string JoinYamlPath(const std::string& outer, std::string_view key) {
  return outer.empty() ? std::string(key) : fmt::format("{}.{}", outer, key);
}

std::string DescribeYamlNode(const YamlNode& node) {
  constexpr size_t kShown = 60;
  switch (node.kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kList:
      return "a list";
    case Kind::kMapping:
      return "a mapping";
    case Kind::kScalar:
      break;
  }
  std::string shown = node.scalar.substr(0, kShown);
  if (node.scalar.size() > kShown) {
    shown += "…";
  }
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  return fmt::format("'{}'", shown);
}

void YamlState::Note(const YamlPlace& place,
                     const std::string& path,
                     const std::string& message,
                     const std::string& hint) {
  problems.push_back(
      {.place = place, .text = path.empty() ? message : path + ": " + message, .hint = hint});
}

YamlPlace PlaceOf(YamlNode& root, std::string_view path) {
  YamlNode* node = &root;
  YamlPlace place = node->place;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view step = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (node->kind == Kind::kList) {
      node = FindItem(*node, step);
    } else {
      YamlNode::Entry* entry = FindEntry(*node, step);
      node = entry == nullptr ? nullptr : &entry->value;
    }
    if (node == nullptr) {
      break;
    }
    place = node->place;
  }
  return place;
}

std::string FormatYamlProblem(const std::string& filename, const YamlProblem& problem) {
  const YamlPlace& place = problem.place;
  const std::string where = place.override_path.empty()
                                ? fmt::format("{}:{}:{}", filename, place.line, place.column)
                                : "--set " + place.override_path;
  return fmt::format("{}: error: {}{}{}", where, problem.text,
                     problem.hint.empty() ? "" : "\n  hint: ", problem.hint);
}

// ---- The document.

YamlDocument::YamlDocument(std::unique_ptr<YamlState> state) : state_(std::move(state)) {}
YamlDocument::YamlDocument(YamlDocument&&) noexcept = default;
YamlDocument& YamlDocument::operator=(YamlDocument&&) noexcept = default;
YamlDocument::~YamlDocument() = default;

Result<YamlDocument> YamlDocument::Parse(std::string_view text,
                                         const std::string& filename,
                                         const std::vector<std::string>& overrides) {
  auto state = std::make_unique<YamlState>();
  state->filename = filename;
  HEDDLE_RETURN_IF_ERROR(ParseYamlText(text, *state, state->root));
  for (const std::string& override_text : overrides) {
    HEDDLE_RETURN_IF_ERROR(ApplyYamlOverride(override_text, *state));
  }
  if (state->root.kind != Kind::kMapping) {
    state->Note(state->root.place, "", "expected a mapping, got " + DescribeYamlNode(state->root));
  }
  return YamlDocument(std::move(state));
}

Result<YamlDocument> YamlDocument::Load(const std::string& path,
                                        const std::vector<std::string>& overrides) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBytesMax));
  return Parse(text, path, overrides);
}

YamlReader YamlDocument::Root() {
  const bool mapping = state_->root.kind == Kind::kMapping;
  return YamlReader(state_.get(), mapping ? &state_->root : nullptr, "");
}

Status YamlDocument::Finish() {
  NoteUnknownKeys(*state_, state_->root, "");
  std::vector<YamlProblem> problems = std::exchange(state_->problems, {});
  if (problems.empty()) {
    return Status::Ok();
  }
  std::stable_sort(
      problems.begin(), problems.end(), [](const YamlProblem& a, const YamlProblem& b) {
        return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
      });
  std::string message;
  for (size_t i = 0; i < std::min(problems.size(), kProblemsMax); ++i) {
    message += i == 0 ? "" : "\n";
    message += FormatYamlProblem(state_->filename, problems[i]);
  }
  if (problems.size() > kProblemsMax) {
    message += fmt::format("\n{} more problems", problems.size() - kProblemsMax);
  }
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status YamlDocument::ErrorAt(const std::string& path,
                             const std::string& message,
                             const std::string& hint) const {
  return {StatusCode::kInvalidArgument,
          FormatYamlProblem(
              state_->filename,
              {.place = PlaceOf(state_->root, path), .text = path + ": " + message, .hint = hint})};
}

}  // namespace heddle
