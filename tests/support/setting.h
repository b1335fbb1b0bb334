/// \file
/// The environment of a test.
#pragma once

#include <cstdlib>
#include <string>

namespace heddle::testing {

/// Sets a variable of the environment, or removes it (null); the destructor restores its old value.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    had_ = before != nullptr;
    before_ = had_ ? before : "";
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Setting() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  bool had_;
  std::string before_;
};

}  // namespace heddle::testing
