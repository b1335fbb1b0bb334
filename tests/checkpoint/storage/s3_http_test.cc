/// \file
/// One exchange with a store: what goes out, what of an answer is taken, and how each failure is
/// named. And the folder from which files go out.
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>

#include "base/bytes.h"
#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "checkpoint/storage/s3/client.h"
#include "checkpoint/storage/s3/http.h"
#include "checkpoint/storage/s3/spool_folder.h"
#include "tests/checkpoint/storage/object_store.h"

namespace heddle::s3 {
namespace {

using ::testing::HasSubstr;
using testing::ObjectStore;
using ::testing::SizeIs;

class S3HttpTest : public ::testing::Test {
 protected:
  Settings MakeSettings() const {
    return {.endpoint = store_.endpoint(),
            .region = "us-east-1",
            .access_key = "user",
            .secret_key = "secret",
            .session_token = "",
            .ca_bundle = "",
            .most_attempts = 1,
            .timeout = std::chrono::seconds(20)};
  }
  Client MakeClient() const { return {MakeSettings(), "bucket"}; }
  /// Each answer has this status and body, sent in these pieces.
  void AnswerInPieces(int status,
                      const std::vector<std::string>& pieces,
                      const std::string& range = "") {
    store_.SetInterference([=](const auto& request, auto& response) {
      ObjectStore::IgnoreRange(request);
      response.status = status;
      response.set_header("ETag", "\"tag\"");
      if (!range.empty()) {
        response.set_header("Content-Range", range);
      }
      response.set_chunked_content_provider("text/plain",
                                            [pieces](size_t /*offset*/, httplib::DataSink& sink) {
                                              for (const std::string& piece : pieces) {
                                                sink.write(piece.data(), piece.size());
                                              }
                                              sink.done();
                                              return true;
                                            });
      return true;
    });
  }

  ObjectStore store_;
};

TEST_F(S3HttpTest, ARangeThatComesInPiecesFillsItsPlaceAndNoMore) {
  const Client client = MakeClient();
  std::string part(3, ' ');
  const auto read = [&] {
    return client.Read("key", "\"tag\"", 0, std::as_writable_bytes(std::span(part)));
  };
  AnswerInPieces(206, {"a", "bc"}, "bytes 0-2/9");
  EXPECT_TRUE(read().ok()) << read().ToString();
  EXPECT_EQ(part, "abc");
  for (const auto& longer :
       std::vector<std::vector<std::string>>{{"abc", "d"}, {"ab", "cd"}, {"a", "bcd"}, {"abcd"}}) {
    AnswerInPieces(206, longer, "bytes 0-2/9");
    EXPECT_EQ(read().code(), StatusCode::kDataLoss);
    EXPECT_THAT(read().message(), HasSubstr("the answer is longer than it may be"));
  }
  AnswerInPieces(206, {"ab"}, "bytes 0-2/9");
  EXPECT_EQ(read().code(), StatusCode::kUnavailable);
  EXPECT_THAT(read().message(), HasSubstr("2 bytes came, 3 were asked for"));
  for (const char* const range : {"bytes 0-2", "bytes 1-3/9", "", "0-2/9"}) {
    AnswerInPieces(206, {"abc"}, range);
    EXPECT_EQ(
        read().message(),
        fmt::format("GET s3://bucket/key: HTTP 206 with range '{}', bytes 0 to 2 were asked for",
                    range));
  }
}

TEST_F(S3HttpTest, AnyOtherBodyIsTakenUpToItsBound) {
  Http http(MakeSettings());
  const auto get = [&](int64_t most) {
    return http.Exchange({.method = HttpRequest::Method::kGet,
                          .url = store_.endpoint() + "/bucket/key",
                          .payload_sha256 = *Sha256({}),
                          .most_bytes = most,
                          .timeout = std::chrono::seconds(20)});
  };
  AnswerInPieces(200, {"ab", "c"});
  const auto answer = get(3);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "abc");
  EXPECT_EQ(answer->length, -1) << "not said";
  EXPECT_EQ(answer->etag, "\"tag\"");
  EXPECT_EQ(get(2).status().code(), StatusCode::kDataLoss);
}

TEST_F(S3HttpTest, HeadersAreReadWhateverTheirCaseAndBlanks) {
  store_.SetInterference([](const auto& /*request*/, auto& response) {
    response.status = 200;
    response.set_header("eTAg", "  \"a b\"  ");
    response.set_header("ETagged", "no");
    response.set_header("CONTENT-RANGE", std::string(1030, 'r'));
    response.set_content("four", "text/plain");
    return true;
  });
  Http http(MakeSettings());
  const auto answer = http.Exchange({.method = HttpRequest::Method::kGet,
                                     .url = store_.endpoint() + "/bucket/key",
                                     .payload_sha256 = *Sha256({}),
                                     .most_bytes = 100,
                                     .timeout = std::chrono::seconds(20)});
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->etag, "\"a b\"");
  EXPECT_EQ(answer->content_range, std::string(1024, 'r')) << "no longer than that";
  EXPECT_EQ(answer->length, 4);
}

TEST_F(S3HttpTest, WhatGoesOutSaysWhoAsks) {
  std::vector<std::string> seen;
  store_.SetInterference([&](const auto& request, auto& /*response*/) {
    seen.push_back(fmt::format("{} {} {} {}", request.method,
                               request.get_header_value("User-Agent"),
                               request.get_header_value("x-amz-security-token"),
                               request.get_header_value("Content-Type")));
    return false;
  });
  Settings settings = MakeSettings();
  settings.session_token = "session";
  const Client client(settings, "bucket");
  ASSERT_TRUE(client.Put("key", {.text = "x"}).ok());
  ASSERT_TRUE(client.BeginUpload("key").ok());
  ASSERT_TRUE(MakeClient().Head("key").ok());
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_EQ(seen[0], "PUT heddle session ");
  EXPECT_EQ(seen[1], "POST heddle session application/xml");
  EXPECT_EQ(seen[2], "HEAD heddle  ");
}

TEST_F(S3HttpTest, AFailureNamesWhatIsToBeCorrected) {
  const auto get = [](const Settings& settings) {
    return Client(settings, "bucket").Get("key", 10).status();
  };
  Settings settings = MakeSettings();
  settings.endpoint = "ftp://127.0.0.1";
  EXPECT_EQ(get(settings).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(get(settings).message(), HasSubstr(": see AWS_ENDPOINT_URL"));
  settings.endpoint = "https://127.0.0.1" + store_.endpoint().substr(store_.endpoint().rfind(':'));
  settings.ca_bundle = "/none/ca.pem";
  EXPECT_EQ(get(settings).code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(get(settings).message(), HasSubstr(": see AWS_CA_BUNDLE"));
  settings = MakeSettings();
  settings.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(get(settings).code(), StatusCode::kUnavailable);
  EXPECT_THAT(get(settings).message(),
              HasSubstr("GET s3://bucket/key at http://127.0.0.1:1/bucket/: "));
}

TEST_F(S3HttpTest, AnAnswerThatCannotBeReadIsNamedByItsRequest) {
  store_.SetInterference([](const auto& /*request*/, auto& response) {
    response.status = 200;
    response.set_content("<", "text/plain");
    return true;
  });
  const Client client = MakeClient();
  EXPECT_EQ(client.Uploads("p/").status().message(),
            "list uploads to s3://bucket/p/: the answer is no XML");
  EXPECT_EQ(client.List("p/", false).status().message(),
            "list s3://bucket/p/: the answer is no XML");
  EXPECT_EQ(client.BeginUpload("key").status().message(),
            "POST s3://bucket/key: the answer is no XML");
  store_.SetInterference([](const auto& /*request*/, auto& response) {
    ObjectStore::Answer(response, 403, "AccessDenied");
    return true;
  });
  EXPECT_THAT(client.Uploads("p/").status().message(),
              ::testing::StartsWith("list uploads to s3://bucket/p/: GET "));
  EXPECT_THAT(client.List("p/", false).status().message(),
              ::testing::StartsWith("list s3://bucket/p/: GET "));
  EXPECT_EQ(client.AbortUpload("key", "id").code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(client.Delete("key").code(), StatusCode::kUnauthenticated);
}

TEST_F(S3HttpTest, AHashIsThatOfWhatIsSent) {
  EXPECT_EQ(*Sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(*Sha256({.text = "abc"}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::string content(150'000, 'x');
  content[100] = 'a';
  content[149'999] = 'b';
  ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (const auto& [offset, bytes] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 150'000}, {100, 65'536}, {99, 3}, {5, 0}}) {
    EXPECT_EQ(*Sha256({.fd = fd.get(), .offset = offset, .bytes = bytes}),
              *Sha256({.text = std::string_view(content).substr(static_cast<size_t>(offset),
                                                                static_cast<size_t>(bytes))}))
        << offset;
  }
  const Status shorter = Sha256({.fd = fd.get(), .offset = 149'999, .bytes = 2}).status();
  EXPECT_EQ(shorter.code(), StatusCode::kDataLoss);
  EXPECT_EQ(shorter.message(), "what is uploaded has become shorter");
  EXPECT_THAT(Sha256({.fd = 1 << 20, .bytes = 1}).status().message(),
              HasSubstr("read what is uploaded"));
  // From a range of a file, too, the store gets just that.
  const Client client = MakeClient();
  ASSERT_TRUE(client.Put("key", {.fd = fd.get(), .offset = 99, .bytes = 70'000}).ok());
  EXPECT_TRUE(store_.Objects().at("bucket/key") == content.substr(99, 70'000));
  EXPECT_THAT(store_.complaints(), SizeIs(0));
}

using checkpoint::SpoolFolder;

class SpoolFolderTest : public ::testing::Test {
 protected:
  SpoolFolderTest() {
    const char* const before = std::getenv("TMPDIR");
    before_ = before == nullptr ? "" : before;
    ::setenv("TMPDIR", folder_.path().c_str(), 1);
  }
  ~SpoolFolderTest() override {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }
  std::string Make(const std::string& name) const {
    const std::string path = folder_.path() + "/" + name;
    std::filesystem::create_directories(path);
    EXPECT_TRUE(WriteFileAtomically(path + "/left", "x").ok());
    return path;
  }

  const TemporaryFolder folder_;
  std::string before_;
};

TEST_F(SpoolFolderTest, ItTakesAwayWhatTheDeadLeftAndNothingElse) {
  const std::string dead = Make("heddle-spool-dead");
  const std::string others = Make("spool-heddle-spool-");
  const std::string linked = folder_.path() + "/heddle-spool-link";
  std::filesystem::create_directory_symlink(others, linked);
  auto first = SpoolFolder::Create();
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_TRUE((*first)->path().starts_with(folder_.path() + "/heddle-spool-"));
  EXPECT_TRUE(std::filesystem::is_directory((*first)->path()));
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(FileExists(others + "/left"));
  EXPECT_TRUE(std::filesystem::is_symlink(linked)) << "a link is nobody's folder";
  ASSERT_TRUE(WriteFileAtomically((*first)->path() + "/mine", "x").ok());
  const auto second = SpoolFolder::Create();
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_NE((*second)->path(), (*first)->path());
  EXPECT_TRUE(FileExists((*first)->path() + "/mine")) << "its holder lives";
  const std::string path = (*first)->path();
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists((*second)->path()));
}

TEST_F(SpoolFolderTest, AFolderThatIsNotThereIsNamed) {
  const std::string none = folder_.path() + "/none";
  ::setenv("TMPDIR", none.c_str(), 1);
  const Status status = SpoolFolder::Create().status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("make " + none + "/heddle-spool-"));
  ::setenv("TMPDIR", "", 1);
  const auto folder = SpoolFolder::Create();
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  EXPECT_TRUE((*folder)->path().starts_with("/tmp/heddle-spool-"));
}

}  // namespace
}  // namespace heddle::s3
