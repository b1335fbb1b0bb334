/// \file
/// An object store with the interface of S3 in this process: it shows its objects and the requests
/// it got, and gives wrong answers when a test asks for them. object_store_test.py uses a real one.
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

/// An object store that listens on 127.0.0.1 from the constructor to the destructor. Thread: any.
class ObjectStore {
 public:
  using Request = httplib::Request;
  using Response = httplib::Response;

  ObjectStore();
  ~ObjectStore();
  std::string endpoint() const;

  /// The store's present objects, by BUCKET/KEY.
  std::map<std::string, std::string> Objects() const;
  std::vector<std::string> Keys(const std::string& bucket) const;
  void Set(const std::string& path, const std::string& content);
  void Erase(const std::string& path);
  /// The number of multipart uploads that were begun and not ended.
  size_t uploads() const;
  void AddUpload(const std::string& id, const std::string& path);
  /// Sets the number of keys in each page of a listing.
  void SetPage(size_t keys);
  /// Sets a function that is called first with each request; it returns true if it answered the
  /// request. Null: none is called.
  void SetInterference(std::function<bool(const Request&, Response&)> interference);
  /// The requests since the last call, each as "METHOD /BUCKET/KEY?QUERY", decoded.
  std::vector<std::string> TakeRequests();
  /// The faults found in requests: a missing signature, a hash that does not match the content.
  std::vector<std::string> complaints() const;

  /// Makes the answer to this request hold the whole body, whatever range it asks for.
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
