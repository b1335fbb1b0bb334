#include "checkpoint/storage/s3/answers.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include <pugixml.hpp>

namespace heddle::s3 {

namespace {

constexpr size_t kMaxEntries = 1000;  // What a page has at most, by S3's own rule.
constexpr size_t kMaxMessageBytes = 300;
constexpr size_t kMaxKeyBytes = 1024;

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

std::string Printable(std::string_view text) {
  std::string out(text.substr(0, kMaxMessageBytes));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c >= 0 && (c < ' ' || c == 127); }, ' ');
  return out;
}

/// pugixml resolves no entities but XML's own five, and opens nothing.
bool Parse(std::string_view text, pugi::xml_document& document) {
  return static_cast<int64_t>(text.size()) <= kMaxAnswerBytes &&
         document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
}

Result<pugi::xml_node> Root(std::string_view text, pugi::xml_document& document, const char* name) {
  if (!Parse(text, document)) {
    return DataLossError("the answer is no XML");
  }
  const pugi::xml_node root = document.document_element();
  if (std::string_view(root.name()) != name) {
    return DataLossError("the answer is a '{}', not a {}", Printable(root.name()), name);
  }
  return root;
}

std::optional<std::string> Decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size() ||
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr !=
            text.data() + i + 3) {
      return std::nullopt;
    }
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

Result<std::string> Key(std::string_view encoded, std::string_view prefix) {
  const auto key = Decode(encoded);
  if (!key || key->empty() || key->size() > kMaxKeyBytes || !key->starts_with(prefix)) {
    return DataLossError("a listing of '{}' names the key '{}'", prefix, Printable(encoded));
  }
  return *key;
}

/// The text of each element `outer`/`inner`, as keys.
Result<std::vector<std::string>> Keys(pugi::xml_node root,
                                      const char* outer,
                                      const char* inner,
                                      std::string_view prefix) {
  std::vector<std::string> keys;
  for (const pugi::xml_node entry : root.children(outer)) {
    HEDDLE_ASSIGN_OR_RETURN(std::string key, Key(entry.child_value(inner), prefix));
    keys.push_back(std::move(key));
    if (keys.size() > kMaxEntries) {
      return DataLossError("a page of a listing has more than {} entries", kMaxEntries);
    }
  }
  return keys;
}

}  // namespace

ErrorAnswer ReadError(std::string_view text) {
  pugi::xml_document document;
  if (!Parse(text, document) || std::string_view(document.document_element().name()) != "Error") {
    return {};
  }
  const pugi::xml_node root = document.document_element();
  return {.code = Printable(root.child_value("Code")),
          .message = Printable(root.child_value("Message"))};
}

Result<Listing> ReadListing(std::string_view text, std::string_view prefix) {
  pugi::xml_document document;
  HEDDLE_ASSIGN_OR_RETURN(const pugi::xml_node root, Root(text, document, "ListBucketResult"));
  Listing listing;
  HEDDLE_ASSIGN_OR_RETURN(listing.keys, Keys(root, "Contents", "Key", prefix));
  HEDDLE_ASSIGN_OR_RETURN(listing.folders, Keys(root, "CommonPrefixes", "Prefix", prefix));
  const std::string_view truncated = root.child_value("IsTruncated");
  if (truncated != "true" && truncated != "false") {
    return DataLossError("a listing does not say whether it is the last page");
  }
  if (truncated == "true") {
    listing.next = root.child_value("NextContinuationToken");
    if (listing.next.empty() || listing.next.size() > kMaxKeyBytes * 4) {
      return DataLossError("a listing has more pages, but no token for them");
    }
  }
  return listing;
}

Result<std::vector<Upload>> ReadUploads(std::string_view text, std::string_view prefix) {
  pugi::xml_document document;
  HEDDLE_ASSIGN_OR_RETURN(const pugi::xml_node root,
                          Root(text, document, "ListMultipartUploadsResult"));
  HEDDLE_ASSIGN_OR_RETURN(const auto keys, Keys(root, "Upload", "Key", prefix));
  std::vector<Upload> uploads;
  for (const pugi::xml_node entry : root.children("Upload")) {
    uploads.push_back({.key = keys[uploads.size()], .id = entry.child_value("UploadId")});
    if (uploads.back().id.empty() || !IsPrintable(uploads.back().id)) {
      return DataLossError("an upload of '{}' has no id", uploads.back().key);
    }
  }
  return uploads;
}

Result<std::string> ReadUploadId(std::string_view text) {
  pugi::xml_document document;
  HEDDLE_ASSIGN_OR_RETURN(const pugi::xml_node root,
                          Root(text, document, "InitiateMultipartUploadResult"));
  std::string id = root.child_value("UploadId");
  if (id.empty() || id.size() > kMaxKeyBytes || !IsPrintable(id)) {
    return DataLossError("the answer has no id of an upload");
  }
  return id;
}

bool IsCompleted(std::string_view text) {
  pugi::xml_document document;
  return Root(text, document, "CompleteMultipartUploadResult").ok();
}

std::string CompleteBody(const std::vector<std::string>& etags) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  for (size_t i = 0; i < etags.size(); ++i) {
    pugi::xml_node part = root.append_child("Part");
    part.append_child("PartNumber").text().set(static_cast<unsigned long long>(i) + 1);
    part.append_child("ETag").text().set(etags[i].c_str());
  }
  std::ostringstream out;
  document.save(out, "", pugi::format_raw | pugi::format_no_declaration);
  return out.str();
}

bool IsPlainTag(std::string_view tag) {
  return !tag.empty() && tag.size() <= 256 && IsPrintable(tag);
}

}  // namespace heddle::s3
