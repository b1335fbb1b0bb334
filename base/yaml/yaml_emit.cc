/// \file
/// Prints a document: block style, two spaces, scalars as they were written; quotes only where the
/// plain text would be read as something else.
#include <algorithm>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/yaml/quote.h"
#include "base/yaml/yaml.h"
#include "base/yaml/yaml_tree.h"

namespace heddle {
namespace {

using Kind = YamlNode::Kind;

/// Whether `text` can stand unquoted in block and flow context and is read as the same scalar.
/// Narrower than YAML allows: letters, digits and a few marks that mean nothing at any position.
bool IsPlain(std::string_view text) {
  constexpr std::string_view kMarks = "_-./+*()";
  const auto word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto harmless = [&](char c) { return word(c) || kMarks.find(c) != std::string_view::npos; };
  if (text.empty() || !std::all_of(text.begin(), text.end(), harmless)) {
    return false;
  }
  // "-", "---" and "*" mean something at the start; "-1", "." and "/" do not.
  const bool starts_well = word(text.front()) || text.front() == '/' || text.front() == '_' ||
                           text.front() == '.' ||
                           (text.front() == '-' && text.size() > 1 && word(text[1]));
  return starts_well && text != "null" && text != "Null" && text != "NULL" && text != "...";
}

/// Whether a plain reader of types (bool, number) could take the text for something else than a
/// word.
bool LooksTyped(std::string_view text) {
  return text == "true" || text == "false" ||
         text.find_first_of("0123456789") != std::string_view::npos;
}

std::string ScalarText(const YamlNode& node, const YamlEmitOptions& options) {
  if (options.absolute_paths && !node.absolute_path.empty()) {
    return IsPlain(node.absolute_path) ? node.absolute_path : QuoteJson(node.absolute_path);
  }
  const bool quote = !IsPlain(node.scalar) || (node.quoted && LooksTyped(node.scalar));
  return quote ? QuoteJson(node.scalar) : node.scalar;
}

class Emitter {
 public:
  explicit Emitter(const YamlEmitOptions& options) : options_(options) {}

  /// Prints `node` after "key:" or "-", with the line's end.
  void EmitValue(const YamlNode& node, int depth) {
    switch (node.kind) {
      case Kind::kNull:
        out_ += " null\n";
        break;
      case Kind::kScalar:
        out_ += fmt::format(" {}\n", ScalarText(node, options_));
        break;
      case Kind::kList:
        out_ += node.items.empty() ? " []\n" : "\n";
        EmitItems(node, depth);
        break;
      case Kind::kMapping:
        out_ += node.entries.empty() ? " {}\n" : "\n";
        EmitEntries(node, depth);
        break;
    }
  }
  void EmitItems(const YamlNode& node, int depth) {
    for (const YamlNode& item : node.items) {
      out_.append(2 * static_cast<size_t>(depth), ' ');
      out_ += "-";
      EmitValue(item, depth + 1);
    }
  }
  void EmitEntries(const YamlNode& node, int depth) {
    std::vector<const YamlNode::Entry*> entries;
    for (const YamlNode::Entry& entry : node.entries) {
      entries.push_back(&entry);
    }
    if (options_.sorted) {
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) { return a->key < b->key; });
    }
    for (const YamlNode::Entry* entry : entries) {
      out_.append(2 * static_cast<size_t>(depth), ' ');
      const bool quote = !IsPlain(entry->key);
      out_ += quote ? QuoteJson(entry->key) : entry->key;
      out_ += ':';
      EmitValue(entry->value, depth + 1);
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  const YamlEmitOptions options_;
  std::string out_;
};

}  // namespace

std::string YamlDocument::Emit(const YamlEmitOptions& options) const {
  Emitter emitter(options);
  emitter.EmitEntries(state_->root, 0);
  return emitter.Take();
}

std::string YamlDocument::Hash() const {
  return Hash128Hex(AsBytes(Emit({.absolute_paths = false, .sorted = true})));
}

}  // namespace heddle
