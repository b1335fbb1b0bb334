/// \file
/// Folders made by hand that stand for /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

#include <stdlib.h>

namespace heddle::comm {

/// A folder that stands for /sys.
class Sys {
 public:
  Sys() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-sys-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~Sys() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Sys(const Sys&) = delete;
  Sys& operator=(const Sys&) = delete;

  std::string root() const { return root_.string(); }
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void Folder(const std::string& path) { std::filesystem::create_directories(root_ / path); }
  void Link(const std::string& path, const std::string& target) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_symlink(target, root_ / path);
  }

  /// An interface; `files` are added or replace what every interface has.
  void Interface(const std::string& name, const std::map<std::string, std::string>& files) {
    std::map<std::string, std::string> all{
        {"type", "1"}, {"operstate", "up"}, {"mtu", "1500"}, {"ifindex", "2"}, {"iflink", "2"}};
    for (const auto& [file, text] : files) {
      all[file] = text;
    }
    for (const auto& [file, text] : all) {
      Put("class/net/" + name + "/" + file, text);
    }
  }
  void Device(const std::string& name, const std::string& driver, const std::string& numa_node) {
    Put("class/net/" + name + "/device/numa_node", numa_node);
    Link("class/net/" + name + "/device/driver", "../../../bus/pci/drivers/" + driver);
  }

 private:
  std::filesystem::path root_;
};

}  // namespace heddle::comm
