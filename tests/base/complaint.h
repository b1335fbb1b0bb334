/// \file
/// The error message that the author of a YAML file sees.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/yaml/yaml.h"

namespace heddle {

/// The error message of YamlDocument::Parse, or of Finish after `read`; "" when both succeed.
inline std::string Complaint(const std::string& text,
                             const std::function<void(YamlReader&)>& read,
                             const std::vector<std::string>& overrides = {}) {
  Result<YamlDocument> document = YamlDocument::Parse(text, "job.yaml", overrides);
  if (!document.ok()) {
    EXPECT_EQ(document.status().code(), StatusCode::kInvalidArgument);
    return document.status().message();
  }
  YamlReader root = document->Root();
  read(root);
  const Status status = document->Finish();
  EXPECT_EQ(status.ok(), status.message().empty());
  return status.message();
}

}  // namespace heddle
