/// \file
/// A YAML reader whose every complaint says where: "job.yaml:6:23: error: elastic.lease: expected a
/// duration, got '500'" and a hint. It collects all problems before it gives up, knows which keys
/// the program asked for (any other key is an error with the nearest valid one named), and takes
/// `--set` overrides. The dialect is narrow on purpose: integers are decimal, booleans are true and
/// false, null, duplicate keys, anchors, merge keys and tags are refused, one document a file.
///
///     HEDDLE_ASSIGN_OR_RETURN(YamlDocument document, YamlDocument::Load("job.yaml", overrides));
///     YamlReader job = document.Root();
///     options.steps = job.Required<int64_t>("steps", {.least = 1});
///     YamlReader model = job.Child("model");
///     options.width = model.Optional<int64_t>("width", 256, {.least = 1});
///     HEDDLE_RETURN_IF_ERROR(document.Finish());
///
/// A read that fails notes the problem and returns the fallback (or a zero value), so that the
/// caller goes on and one run names everything that is wrong. What was read is worth something only
/// when Finish() says ok.
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

/// The values that are allowed. `least` and `most` belong to the range, `above` and `below` do not.
template <typename T>
struct Range {
  std::optional<T> least = std::nullopt;
  std::optional<T> most = std::nullopt;
  std::optional<T> above = std::nullopt;
  std::optional<T> below = std::nullopt;
};

/// A name of a job file and what it stands for.
template <typename E>
using YamlChoices = std::vector<std::pair<std::string_view, E>>;

/// A view of one mapping of a document. T is one of bool, int32_t, int64_t, uint64_t, double,
/// std::string (any scalar that is not empty), ByteSize, ByteRate, Duration.
/// Owner: borrows from its YamlDocument. Thread: one caller at a time a document.
class YamlReader {
 public:
  /// Whether the file has this section; false for an optional child that is not there, from which
  /// Optional() gives fallbacks and Required() a zero value without complaint.
  bool present() const { return node_ != nullptr; }

  /// The value of `key`, which must be there.
  template <typename T>
  T Required(std::string_view key, const Range<T>& range = {});
  /// The value of `key`, or `fallback`.
  template <typename T>
  T Optional(std::string_view key, const T& fallback, const Range<T>& range = {});
  /// The value of `key`, if it is there.
  template <typename T>
  std::optional<T> Maybe(std::string_view key, const Range<T>& range = {});
  /// A list of scalars; one scalar alone stands for a list of one. Absent: empty.
  template <typename T>
  std::vector<T> List(std::string_view key, const Range<T>& range = {});

  /// The path of a file, seen from the folder of the document's file. Empty after a problem.
  std::string RequiredPath(std::string_view key);
  std::string OptionalPath(std::string_view key, const std::string& fallback);
  std::vector<std::string> PathList(std::string_view key);

  /// One of a set of names.
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
  /// The mappings in the list at `key`, in order. Absent: empty.
  std::vector<YamlReader> Children(std::string_view key);

  /// Whether the key is there, and what kind of value it has: for keys that may take several.
  bool Has(std::string_view key);
  bool IsMapping(std::string_view key);

  /// Notes a problem of the caller's own (a cross check) at `key`, or at the mapping if it is
  /// empty.
  void Fail(std::string_view key, const std::string& message, const std::string& hint = "");
  /// Notes values that do not go together, at the one of `keys` ("a.b": in a mapping below) that
  /// an override set, else at the first. The message names the keys.
  void FailAmong(const std::vector<std::string>& keys,
                 const std::string& message,
                 const std::string& hint = "");

  /// "workers.2": where this mapping stands; empty at the root.
  const std::string& path() const { return path_; }

 private:
  friend class YamlDocument;
  YamlReader(YamlState* state, YamlNode* node, std::string path);
  /// Marks the key as known and returns its value, or nullptr.
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

/// How Emit() prints.
struct YamlEmitOptions {
  /// Values that were read as paths become absolute, so that the text means the same in any folder.
  bool absolute_paths = false;
  /// Keys in alphabetical order, so that the order in the file does not matter.
  bool sorted = false;
};

/// One file and its overrides. Thread: one caller at a time.
class YamlDocument {
 public:
  static constexpr int64_t kBytesMax = 1 << 20;
  static constexpr int kDepthMax = 32;

  /// Parses `text`; `filename` stands in messages, and its folder is where relative paths start.
  /// `overrides` are "key.path=value" in order; a value is a YAML scalar or flow collection ("[1,
  /// 2]"), a number in the path is the position in a list, missing mappings are made. Errors:
  /// kInvalidArgument for text that is no YAML at all and for an override without "=". Everything
  /// else is collected for Finish().
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

  /// Ends the reading: every problem so far and every key that no reader asked for, sorted by line,
  /// at most 20 and a count of the rest, as one kInvalidArgument.
  Status Finish();

  /// One kInvalidArgument in the same form at "workers.2.memory" (or at the nearest mapping that
  /// exists above it), for what turns out later, such as a data file that is not there.
  Status ErrorAt(const std::string& path,
                 const std::string& message,
                 const std::string& hint = "") const;

  /// The document with its overrides as YAML text that Parse() reads as the same document.
  std::string Emit(const YamlEmitOptions& options = {}) const;

  /// 32 hexadecimal digits over the sorted text: equal for files that differ in comments, layout
  /// and the order of keys only.
  std::string Hash() const;

 private:
  explicit YamlDocument(std::unique_ptr<YamlState> state);
  std::unique_ptr<YamlState> state_;
};

}  // namespace heddle
