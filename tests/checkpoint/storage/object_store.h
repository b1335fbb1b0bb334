/// \file
/// An object store with the interface of S3 in this process: what a bucket holds, what is asked of
/// it, and answers that go wrong when a test says so. object_store_test.py has one that is not
/// ours.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <httplib.h>

#include "base/mutex.h"
#include "base/thread.h"

namespace heddle::testing {

/// Listens on 127.0.0.1 from the constructor to the destructor. Thread: any.
class ObjectStore {
 public:
  using Request = httplib::Request;
  using Response = httplib::Response;

  ObjectStore();
  ~ObjectStore();
  std::string endpoint() const;

  /// Objects by BUCKET/KEY; as the store has them at this moment.
  std::map<std::string, std::string> Objects() const;
  std::vector<std::string> Keys(const std::string& bucket) const;
  void Set(const std::string& path, const std::string& content);
  void Erase(const std::string& path);
  /// Begun and not ended.
  size_t uploads() const;
  void AddUpload(const std::string& id, const std::string& path);
  /// Keys a page of a listing.
  void SetPage(size_t keys);
  /// Asked first about each request; true: it has answered. Null: nobody is asked.
  void SetInterference(std::function<bool(const Request&, Response&)> interference);
  /// "METHOD /BUCKET/KEY?QUERY", decoded, since the last call.
  std::vector<std::string> TakeRequests();
  /// What was wrong with a request: a signature that is missing, a hash that is another's.
  std::vector<std::string> complaints() const;

  /// Of this request the answer's whole body goes, whatever range it asks for.
  static void IgnoreRange(const Request& request) {
    const_cast<Request&>(request).ranges.clear();  // httplib cuts the body itself, later.
  }
  static void Answer(Response& response, int status, const std::string& code);
  static std::string TagOf(const std::string& content);

 private:
  struct Upload {
    std::string path;
    std::map<int, std::string> parts;
  };

  void Handle(const Request& request, Response& response);
  void Check(const Request& request);
  void Get(const std::string& path, const Request& request, Response& response);
  void List(const std::string& bucket, const Request& request, Response& response);
  void Put(const std::string& path, const Request& request, Response& response);
  void Post(const std::string& path, const Request& request, Response& response);

  httplib::Server server_;
  int port_ = 0;
  mutable Mutex mutex_;
  std::map<std::string, std::string> objects_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, Upload> uploads_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::string> requests_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::string> complaints_ HEDDLE_GUARDED_BY(mutex_);
  std::function<bool(const Request&, Response&)> interference_ HEDDLE_GUARDED_BY(mutex_);
  size_t page_ HEDDLE_GUARDED_BY(mutex_) = 1000;
  std::unique_ptr<Thread> thread_;
};

}  // namespace heddle::testing
