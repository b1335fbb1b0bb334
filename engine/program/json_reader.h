/// \file
/// Strict reading of JSON: an unknown, missing or repeated key, a wrong type or a number out of range
/// is an error that names the key.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace heddle::program {

using Json = nlohmann::json;

/// Parses a text that `what` names. Errors: kInvalidArgument (no JSON, a key twice, nested too deep).
Result<Json> ParseText(std::string_view text, std::string_view what);

/// The text of a value, indented, which is a function of the value alone. Bytes that are no UTF-8
/// are replaced.
std::string Dump(const Json& json);

/// Reads one object's members; it refers to the object. The first error stays, and reads after it
/// return defaults.
class ObjectReader {
 public:
  using Each = std::function<void(const Json& value, const std::string& path)>;
  using EachMember =
      std::function<void(const std::string& name, const Json& value, const std::string& path)>;

  /// `path` names the object in errors.
  ObjectReader(const Json& json, std::string path);

  /// Whether the object has the key, which is still to be read.
  bool Has(const char* key) const;

  // The value of a key, which must be there.
  int64_t Integer(const char* key, int64_t low, int64_t high);
  int Int(const char* key, int low);
  std::vector<int> Ints(const char* key);  ///< A list of integers of at least 0.
  double NonNegative(const char* key);
  bool Bool(const char* key);
  std::string Text(const char* key);
  /// Calls `each` for each element of an array.
  void Array(const char* key, const Each& each);
  void Elements(const Json& array, const std::string& path, const Each& each);
  /// Calls `each` for each member of an object.
  void Members(const char* key, const EachMember& each);

  // The value that `path` names in errors.
  int64_t ToInteger(const Json& value, const std::string& path, int64_t low, int64_t high);
  std::vector<int> ToInts(const Json& array, const std::string& path);
  double ToNonNegative(const Json& value, const std::string& path);
  std::string ToText(const Json& value, const std::string& path);
  /// Notes the error that the value at `path` is not what is expected.
  void Fail(const std::string& path, std::string_view expected, const Json& got);
  /// Takes over an error of what was read by other means.
  void Take(const Status& status);

  /// After all reads: the first error, or that of a key that nobody asked for.
  Status Finish();

 private:
  std::string Path(const std::string& key) const { return path_ + "." + key; }
  const Json* Find(const char* key);

  const Json& json_;
  const std::string path_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace heddle::program
