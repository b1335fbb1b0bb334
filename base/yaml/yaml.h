/// \file
/// A YAML reader whose errors have positions: "job.yaml:6:23: error: elastic.lease: expected a
/// duration, got '500'" and a hint. It collects all problems before it fails, knows which keys the
/// program asked for (any other key is an error that names the nearest valid one), and supports
/// `--set` overrides. The dialect is narrow on purpose: integers are decimal; booleans are true and
/// false; null, duplicate keys, anchors, merge keys and tags are refused; a file has one document.
///
///     HEDDLE_ASSIGN_OR_RETURN(YamlDocument document, YamlDocument::Load("job.yaml", overrides));
///     YamlReader job = document.Root();
///     options.steps = job.Required<int64_t>("steps", {.least = 1});
///     YamlReader model = job.Child("model");
///     options.width = model.Optional<int64_t>("width", 256, {.least = 1});
///     HEDDLE_RETURN_IF_ERROR(document.Finish());
///
/// A read that fails records the problem and returns the fallback (or a zero value), so that the
/// caller goes on and one run reports all problems. The values are valid only if Finish() returns
/// ok.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace heddle {

struct YamlNode;
struct YamlState;

/// The range of allowed values. `least` and `most` are allowed values, `above` and `below` are not.
template <typename T>
struct Range {
  std::optional<T> least = std::nullopt;
  std::optional<T> most = std::nullopt;
  std::optional<T> above = std::nullopt;
  std::optional<T> below = std::nullopt;
};

/// The names that a key accepts and their values.
template <typename E>
using YamlChoices = std::vector<std::pair<std::string_view, E>>;

/// A view of one mapping of a document. T is one of bool, int32_t, int64_t, uint64_t, double,
/// std::string (any scalar that is not empty), ByteSize, ByteRate, Duration.
/// It borrows from its YamlDocument. Thread: one caller at a time per document.
class YamlReader {
 public:
  /// Whether the file has this section. False for an optional child that is missing; its Optional()
  /// returns fallbacks and its Required() zero values, without recording a problem.
  bool present() const { return node_ != nullptr; }

  /// The value of `key`, which must exist.
  template <typename T>
  T Required(std::string_view key, const Range<T>& range = {});
  /// The value of `key`; `fallback` if it is missing.
  template <typename T>
  T Optional(std::string_view key, const T& fallback, const Range<T>& range = {});
  /// The value of `key`; nullopt if it is missing.
  template <typename T>
  std::optional<T> Maybe(std::string_view key, const Range<T>& range = {});
  /// The list of scalars at `key`; a single scalar counts as a list of one. Missing: empty.
  template <typename T>
  std::vector<T> List(std::string_view key, const Range<T>& range = {});

  /// The path at `key`, resolved relative to the folder of the document's file. Empty after a
  /// problem.
  std::string RequiredPath(std::string_view key);
  std::string OptionalPath(std::string_view key, const std::string& fallback);
  std::vector<std::string> PathList(std::string_view key);

  /// The value of the name at `key`, which must be one of `choices`.
  template <typename E>
  E RequiredChoice(std::string_view key, const YamlChoices<E>& choices) {
    const int index = ChoiceIndex(key, NamesOf(choices), true);
    return index < 0 ? choices.front().second : choices[static_cast<size_t>(index)].second;
  }
  template <typename E>
  E OptionalChoice(std::string_view key, E fallback, const YamlChoices<E>& choices) {
    const int index = ChoiceIndex(key, NamesOf(choices), false);
    return index < 0 ? fallback : choices[static_cast<size_t>(index)].second;
  }

  /// The mapping at `key`.
  YamlReader Child(std::string_view key);
  YamlReader OptionalChild(std::string_view key);
  /// The mappings in the list at `key`, in order. Missing: empty.
  std::vector<YamlReader> Children(std::string_view key);

  /// Whether the key exists. Has and IsMapping are for keys that accept several kinds of values.
  bool Has(std::string_view key);
  bool IsMapping(std::string_view key);

  /// Records a problem that the caller found (a cross check) at `key`, or at the mapping if `key`
  /// is empty.
  void Fail(std::string_view key, const std::string& message, const std::string& hint = "");
  /// Records that the values of `keys` ("a.b": in a mapping below) contradict each other. The
  /// problem is placed at the key that an override set, else at the first. The message names the
  /// keys.
  void FailAmong(const std::vector<std::string>& keys,
                 const std::string& message,
                 const std::string& hint = "");

  /// The path of this mapping, "workers.2"; empty at the root.
  const std::string& path() const { return path_; }

 private:
  friend class YamlDocument;
  YamlReader(YamlState* state, YamlNode* node, std::string path);
  /// Marks the key as known and returns its value; null: it is missing.
  YamlNode* Find(std::string_view key);
  YamlNode* FindRequired(std::string_view key, std::string_view expected);
  std::string PathOf(std::string_view key) const;
  std::string ReadPath(YamlNode& node, const std::string& path);
  int ChoiceIndex(std::string_view key, const std::vector<std::string_view>& names, bool required);

  template <typename E>
  static std::vector<std::string_view> NamesOf(const YamlChoices<E>& choices) {
    std::vector<std::string_view> names;
    for (const auto& choice : choices) {
      names.push_back(choice.first);
    }
    return names;
  }

  YamlState* state_;
  YamlNode* node_;
  std::string path_;
};

/// Options of Emit().
struct YamlEmitOptions {
  /// Make values that were read as paths absolute, so that the text means the same in any folder.
  bool absolute_paths = false;
  /// Print keys in alphabetical order, so that the order in the file does not matter.
  bool sorted = false;
};

/// A YAML file and its overrides. Thread: one caller at a time.
class YamlDocument {
 public:
  static constexpr int64_t kBytesMax = 1 << 20;
  static constexpr int kDepthMax = 32;

  /// Parses `text`. `filename` is used in messages, and relative paths start at its folder.
  /// `overrides` are "key.path=value" in order: a value is a YAML scalar or flow collection ("[1,
  /// 2]"), a number in the path is an index into a list, and missing mappings are created. Errors:
  /// kInvalidArgument (text that cannot be parsed, an override without "="). All other problems are
  /// collected for Finish().
  static Result<YamlDocument> Parse(std::string_view text,
                                    const std::string& filename,
                                    const std::vector<std::string>& overrides = {});
  /// Reads and parses the file at `path`. Errors: those of ReadFile() and Parse().
  static Result<YamlDocument> Load(const std::string& path,
                                   const std::vector<std::string>& overrides = {});

  YamlDocument(YamlDocument&&) noexcept;
  YamlDocument& operator=(YamlDocument&&) noexcept;
  ~YamlDocument();

  /// The outermost mapping.
  YamlReader Root();

  /// Ends the reading. Errors: kInvalidArgument with all problems and all keys that no reader asked
  /// for, sorted by line; at most 20 and the number of the rest.
  Status Finish();

  /// A kInvalidArgument in the same form at `path` ("workers.2.memory", or the nearest mapping
  /// above it that exists), for problems found later, such as a missing data file.
  Status ErrorAt(const std::string& path,
                 const std::string& message,
                 const std::string& hint = "") const;

  /// The document with its overrides as YAML text that Parse() reads as the same document.
  std::string Emit(const YamlEmitOptions& options = {}) const;

  /// A hash of the sorted text, as 32 hexadecimal digits. It is equal for files that differ only in
  /// comments, layout and the order of keys.
  std::string Hash() const;

 private:
  explicit YamlDocument(std::unique_ptr<YamlState> state);
  std::unique_ptr<YamlState> state_;
};

}  // namespace heddle
