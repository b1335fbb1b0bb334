#include "tests/checkpoint/storage/object_store.h"

#include <cctype>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <openssl/sha.h>

#include "base/check.h"

namespace heddle::testing {

namespace {

std::string Hex(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += fmt::format("{:02x}", byte);
  }
  return hex;
}

/// As "encoding-type=url" asks for.
std::string Encoded(const std::string& key) {
  std::string out;
  for (const char c : key) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' ||
                       c == '_' || c == '/';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

void AnswerXml(httplib::Response& response, const std::string& xml) {
  response.set_content(xml, "application/xml");
}

}  // namespace

ObjectStore::ObjectStore() {
  const auto handle = [this](const Request& request, Response& response) {
    Handle(request, response);
  };
  server_.Get("/ready", [](const Request&, Response&) {});
  server_.Get(".*", handle).Put(".*", handle).Post(".*", handle).Delete(".*", handle);
  server_.set_tcp_nodelay(true);
  port_ = server_.bind_to_any_port("127.0.0.1");
  HEDDLE_CHECK(port_ > 0, "no port is free");
  thread_ = std::make_unique<Thread>("object-store", [this] { server_.listen_after_bind(); });
  // A server that does not run yet cannot be stopped.
  HEDDLE_CHECK(httplib::Client(endpoint()).Get("/ready"), "the store does not answer");
}

ObjectStore::~ObjectStore() {
  server_.stop();
  thread_->Join();
}

std::string ObjectStore::endpoint() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

std::map<std::string, std::string> ObjectStore::Objects() const {
  const MutexLock lock(mutex_);
  return objects_;
}

std::vector<std::string> ObjectStore::Keys(const std::string& bucket) const {
  const MutexLock lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [path, content] : objects_) {
    if (path.starts_with(bucket + "/")) {
      keys.push_back(path.substr(bucket.size() + 1));
    }
  }
  return keys;
}

void ObjectStore::Set(const std::string& path, const std::string& content) {
  const MutexLock lock(mutex_);
  objects_[path] = content;
}

void ObjectStore::Erase(const std::string& path) {
  const MutexLock lock(mutex_);
  objects_.erase(path);
}

size_t ObjectStore::uploads() const {
  const MutexLock lock(mutex_);
  return uploads_.size();
}

void ObjectStore::AddUpload(const std::string& id, const std::string& path) {
  const MutexLock lock(mutex_);
  uploads_[id] = {.path = path, .parts = {}};
}

void ObjectStore::SetPage(size_t keys) {
  const MutexLock lock(mutex_);
  page_ = keys;
}

void ObjectStore::SetInterference(std::function<bool(const Request&, Response&)> interference) {
  const MutexLock lock(mutex_);
  interference_ = std::move(interference);
}

std::vector<std::string> ObjectStore::TakeRequests() {
  const MutexLock lock(mutex_);
  return std::exchange(requests_, {});
}

std::vector<std::string> ObjectStore::complaints() const {
  const MutexLock lock(mutex_);
  return complaints_;
}

void ObjectStore::Answer(Response& response, int status, const std::string& code) {
  response.status = status;
  AnswerXml(response,
            fmt::format("<Error><Code>{}</Code><Message>the store says {}</Message></Error>", code,
                        code));
}

std::string ObjectStore::TagOf(const std::string& content) {
  return fmt::format("\"{}\"", Hex(content).substr(0, 32));
}

void ObjectStore::Check(const Request& request) {
  const std::string signature = request.get_header_value("Authorization");
  const MutexLock lock(mutex_);
  if (!signature.starts_with("AWS4-HMAC-SHA256 Credential=user/") ||
      signature.find("SignedHeaders=") == std::string::npos) {
    complaints_.push_back(request.method + " " + request.path + ": signed '" + signature + "'");
  }
  if (request.get_header_value("x-amz-content-sha256") != Hex(request.body)) {
    complaints_.push_back(request.method + " " + request.path + ": another hash");
  }
  if (request.method == "POST" && request.get_header_value("Content-Type") != "application/xml") {
    complaints_.push_back("POST " + request.path + ": of another type");
  }
}

void ObjectStore::Handle(const Request& request, Response& response) {
  Check(request);
  std::function<bool(const Request&, Response&)> interference;
  {
    const MutexLock lock(mutex_);
    std::string line = request.method + " " + request.path;
    for (const auto& [name, value] : request.params) {
      line += fmt::format("{}{}={}", line.find('?') == std::string::npos ? '?' : '&', name, value);
    }
    requests_.push_back(line);
    interference = interference_;
  }
  if (interference && interference(request, response)) {
    return;
  }
  const std::string path = request.path.substr(1);
  const size_t slash = path.find('/');
  if (slash != std::string::npos && slash + 1 == path.size() && request.method == "GET") {
    List(path.substr(0, slash), request, response);
  } else if (request.method == "GET" || request.method == "HEAD") {
    Get(path, request, response);
  } else if (request.method == "PUT") {
    Put(path, request, response);
  } else if (request.method == "POST") {
    Post(path, request, response);
  } else {
    const MutexLock lock(mutex_);
    const bool there = request.has_param("uploadId")
                           ? uploads_.erase(request.get_param_value("uploadId")) > 0
                           : objects_.erase(path) > 0;
    if (there) {
      response.status = 204;
    } else {
      Answer(response, 404, "NoSuchKey");
    }
  }
}

void ObjectStore::Get(const std::string& path, const Request& request, Response& response) {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(path);
  if (found == objects_.end()) {
    Answer(response, 404, "NoSuchKey");
  } else if (request.has_header("If-Match") &&
             request.get_header_value("If-Match") != TagOf(found->second)) {
    Answer(response, 412, "PreconditionFailed");
  } else {
    response.set_header("ETag", TagOf(found->second));
    response.set_content(found->second, "binary/octet-stream");
  }
}

void ObjectStore::List(const std::string& bucket, const Request& request, Response& response) {
  const std::string prefix = request.get_param_value("prefix");
  const std::string token = request.get_param_value("continuation-token");
  const MutexLock lock(mutex_);
  if (request.has_param("uploads")) {
    std::string xml = "<ListMultipartUploadsResult>";
    for (const auto& [id, upload] : uploads_) {
      if (upload.path.starts_with(bucket + "/" + prefix)) {
        xml += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId></Upload>",
                           Encoded(upload.path.substr(bucket.size() + 1)), id);
      }
    }
    AnswerXml(response, xml + "</ListMultipartUploadsResult>");
    return;
  }
  std::set<std::string> entries;  // Keys, and folders with their slash.
  for (const auto& [path, content] : objects_) {
    if (path.starts_with(bucket + "/" + prefix)) {
      const std::string key = path.substr(bucket.size() + 1);
      const size_t slash =
          request.has_param("delimiter") ? key.find('/', prefix.size()) : std::string::npos;
      entries.insert(slash == std::string::npos ? key : key.substr(0, slash + 1));
    }
  }
  std::string xml = "<ListBucketResult>";
  size_t given = 0;
  std::string next;
  for (const std::string& entry : entries) {
    if (entry <= token && !token.empty()) {
      continue;
    }
    if (given == page_) {
      xml += "<NextContinuationToken>" + next + "</NextContinuationToken>";
      break;
    }
    ++given;
    next = entry;
    xml += entry.ends_with('/')
               ? "<CommonPrefixes><Prefix>" + Encoded(entry) + "</Prefix></CommonPrefixes>"
               : "<Contents><Key>" + Encoded(entry) + "</Key></Contents>";
  }
  const bool truncated = xml.find("<NextContinuationToken>") != std::string::npos;
  AnswerXml(response,
            xml + fmt::format("<IsTruncated>{}</IsTruncated></ListBucketResult>", truncated));
}

void ObjectStore::Put(const std::string& path, const Request& request, Response& response) {
  const MutexLock lock(mutex_);
  if (request.has_param("uploadId")) {
    const auto upload = uploads_.find(request.get_param_value("uploadId"));
    if (upload == uploads_.end() || upload->second.path != path) {
      Answer(response, 404, "NoSuchUpload");
      return;
    }
    upload->second.parts[std::stoi(request.get_param_value("partNumber"))] = request.body;
  } else {
    const auto found = objects_.find(path);
    const bool there = found != objects_.end();
    if ((request.get_header_value("If-None-Match") == "*" && there) ||
        (request.has_header("If-Match") &&
         (!there || request.get_header_value("If-Match") != TagOf(found->second)))) {
      Answer(response, 412, "PreconditionFailed");
      return;
    }
    objects_[path] = request.body;
  }
  response.set_header("ETag", TagOf(request.body));
}

void ObjectStore::Post(const std::string& path, const Request& request, Response& response) {
  const MutexLock lock(mutex_);
  if (request.has_param("uploads")) {
    const std::string id = fmt::format("upload-{}", uploads_.size() + requests_.size());
    uploads_[id] = {.path = path, .parts = {}};
    AnswerXml(response, "<InitiateMultipartUploadResult><UploadId>" + id +
                            "</UploadId></InitiateMultipartUploadResult>");
    return;
  }
  const auto upload = uploads_.find(request.get_param_value("uploadId"));
  if (upload == uploads_.end() || upload->second.path != path) {
    Answer(response, 404, "NoSuchUpload");
    return;
  }
  std::string whole;
  std::string wanted = "<CompleteMultipartUpload>";
  for (const auto& [number, content] : upload->second.parts) {
    whole += content;
    // pugixml writes a quote as an entity in attributes alone.
    wanted += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number,
                          TagOf(content));
  }
  if (request.body != wanted + "</CompleteMultipartUpload>") {
    Answer(response, 400, "InvalidPart");
    return;
  }
  objects_[path] = whole;
  uploads_.erase(upload);
  AnswerXml(response, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
}

}  // namespace heddle::testing
