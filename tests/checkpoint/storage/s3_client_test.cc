/// \file
/// Each operation on an object store, and what becomes of each of its answers.
#include <atomic>

#include <fcntl.h>
#include <gmock/gmock.h>

#include "base/bytes.h"
#include "base/random.h"
#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "checkpoint/storage/s3/client.h"
#include "checkpoint/storage/s3/s3_file.h"
#include "checkpoint/storage/s3/upload.h"
#include "tests/checkpoint/storage/object_store.h"

namespace heddle::s3 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ObjectStore;
using ::testing::SizeIs;

class S3ClientTest : public ::testing::Test {
 protected:
  Settings MakeSettings(int attempts = 3) const {
    return {.endpoint = store_.endpoint(),
            .region = "us-east-1",
            .access_key = "user",
            .secret_key = "secret",
            .session_token = "",
            .ca_bundle = "",
            .most_attempts = attempts,
            .timeout = std::chrono::seconds(20),
            .part_bytes = 1 << 20};
  }
  Client MakeClient(int attempts = 3) const { return {MakeSettings(attempts), "bucket"}; }
  /// The next `count` requests are answered so.
  void AnswerNext(int count, int status, const std::string& code) {
    store_.SetInterference([left = std::make_shared<std::atomic<int>>(count), status, code](
                               const auto& /*request*/, auto& response) {
      if (left->fetch_sub(1) <= 0) {
        return false;
      }
      ObjectStore::Answer(response, status, code);
      return true;
    });
  }
  void TearDown() override { EXPECT_THAT(store_.complaints(), IsEmpty()); }

  ObjectStore store_;
};

std::string Text(size_t bytes) {
  Random random(bytes);
  std::string text(bytes, '\0');
  for (char& c : text) {
    c = static_cast<char>(random.Below(256));
  }
  return text;
}

TEST_F(S3ClientTest, ObjectsAreWrittenAndRead) {
  const Client client = MakeClient();
  const std::string key = "a folder/name+ä%.h5";
  const auto tag = client.Put(key, {.text = "0123456789"});
  ASSERT_TRUE(tag.ok()) << tag.status().ToString();
  EXPECT_EQ(*tag, ObjectStore::TagOf("0123456789"));
  EXPECT_EQ(store_.Objects().at("bucket/" + key), "0123456789");
  const auto facts = client.Head(key);
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_EQ(facts->bytes, 10);
  EXPECT_EQ(facts->etag, *tag);
  const auto object = client.Get(key, 10);
  ASSERT_TRUE(object.ok()) << object.status().ToString();
  EXPECT_EQ(object->content, "0123456789");
  EXPECT_EQ(object->etag, *tag);
  std::string part(4, ' ');
  ASSERT_TRUE(client.Read(key, *tag, 3, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "3456");
  EXPECT_TRUE(client.Read(key, "no tag", 3, {}).ok()) << "nothing is asked for";
  EXPECT_TRUE(client.Delete(key).ok());
  EXPECT_TRUE(client.Delete(key).ok()) << "nothing there is fine";
  EXPECT_EQ(client.Head(key).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client.Get(key, 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client.UrlOf(key), "s3://bucket/" + key);
}

TEST_F(S3ClientTest, ABodyIsNoLongerThanItMayBe) {
  const Client client = MakeClient();
  // Any answer may be as long as an error's page.
  const size_t most = static_cast<size_t>(kMaxAnswerBytes) + 10;
  store_.Set("bucket/key", Text(most));
  EXPECT_TRUE(client.Get("key", static_cast<int64_t>(most)).ok());
  const auto longer = client.Get("key", static_cast<int64_t>(most) - 1);
  EXPECT_EQ(longer.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(longer.status().message(), HasSubstr("the answer is longer than it may be"));
  EXPECT_EQ(client.Get("key", 5).status().code(), StatusCode::kDataLoss);
}

TEST_F(S3ClientTest, AConditionIsTheStoresToJudge) {
  const Client client = MakeClient();
  ASSERT_TRUE(client.Put("key", {.text = "a"}, {.absent = true}).ok());
  const auto again = client.Put("key", {.text = "b"}, {.absent = true});
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(again.status().message(),
              HasSubstr("PUT s3://bucket/key at " + store_.endpoint() +
                        "/bucket/: HTTP 412 PreconditionFailed: the store "
                        "says PreconditionFailed"));
  EXPECT_EQ(client.Put("key", {.text = "b"}, {.etag = "\"other\""}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(client.Put("key", {.text = "b"}, {.etag = ObjectStore::TagOf("a")}).ok());
  EXPECT_EQ(store_.Objects().at("bucket/key"), "b");
}

TEST_F(S3ClientTest, AnObjectThatIsReplacedIsNotMixed) {
  const Client client = MakeClient();
  store_.Set("bucket/key", "new");
  std::string part(2, ' ');
  const auto out = std::as_writable_bytes(std::span(part));
  const Status status = client.Read("key", ObjectStore::TagOf("old"), 0, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "s3://bucket/key: it was replaced while it was read");
  store_.SetInterference([](const auto& request, auto& response) {
    ObjectStore::IgnoreRange(request);
    response.status = 200;
    response.set_content("new", "text/plain");
    return true;
  });
  EXPECT_EQ(client.Read("key", ObjectStore::TagOf("new"), 0, out).message(),
            "GET s3://bucket/key: HTTP 200 with range '', bytes 0 to 1 were asked for");
}

TEST_F(S3ClientTest, AnotherRangeThanWasAskedForIsRefused) {
  const Client client = MakeClient();
  store_.SetInterference([](const auto& request, auto& response) {
    ObjectStore::IgnoreRange(request);
    response.status = 206;
    response.set_header("Content-Range", "bytes 1-2/9");
    response.body = "ab";
    return true;
  });
  std::string part(2, ' ');
  const Status status = client.Read("key", "\"tag\"", 0, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

TEST_F(S3ClientTest, LaterIsTriedAgainAndNoIsNot) {
  const Client client = MakeClient(3);
  store_.Set("bucket/key", "x");
  for (const int status : {500, 502, 503, 504, 429, 408}) {
    AnswerNext(2, status, "");
    store_.TakeRequests();
    EXPECT_TRUE(client.Get("key", 10).ok()) << status;
    EXPECT_THAT(store_.TakeRequests(), SizeIs(3));
  }
  AnswerNext(3, 503, "SlowDown");
  const Status late = client.Get("key", 10).status();
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  EXPECT_EQ(late.message(),
            "GET s3://bucket/key at " + store_.endpoint() +
                "/bucket/, attempt 3: HTTP 503 SlowDown: the store says SlowDown: the "
                "store is overloaded or down");
  const std::string credentials =
      ": check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what the bucket's policy allows";
  const std::string settings = ": check AWS_REGION and AWS_ENDPOINT_URL";
  const std::vector<std::tuple<int, std::string, StatusCode, std::string>> refusals = {
      {401, "A", StatusCode::kUnauthenticated, credentials},
      {403, "A", StatusCode::kUnauthenticated, credentials},
      {404, "A", StatusCode::kNotFound, ""},
      {404, "NoSuchBucket", StatusCode::kInvalidArgument,
       ": create the bucket, or correct its name"},
      {409, "A", StatusCode::kFailedPrecondition, ""},
      {412, "A", StatusCode::kFailedPrecondition, ""},
      {416, "A", StatusCode::kDataLoss, ""},
      {501, "A", StatusCode::kUnimplemented, ""},
      {507, "A", StatusCode::kResourceExhausted, ""},
      {505, "A", StatusCode::kUnavailable, ": the store is overloaded or down"},
      {400, "A", StatusCode::kInvalidArgument, settings},
      {301, "PermanentRedirect", StatusCode::kInvalidArgument, settings}};
  for (const auto& [http, code, expected, advice] : refusals) {
    AnswerNext(1, http, code);
    store_.TakeRequests();
    const Status status = client.Get("key", 10).status();
    EXPECT_EQ(status.code(), expected) << http;
    EXPECT_EQ(status.message(),
              fmt::format("GET s3://bucket/key at {}/bucket/: HTTP {} {}: the store says {}{}",
                          store_.endpoint(), http, code, code, advice));
    EXPECT_THAT(store_.TakeRequests(), SizeIs(1)) << http;
  }
}

TEST_F(S3ClientTest, AnErrorWithoutAPageIsItsNumber) {
  store_.SetInterference([](const auto&, auto& response) {
    response.status = 400;
    return true;
  });
  EXPECT_THAT(MakeClient().Put("key", {.text = "x"}).status().message(),
              ::testing::EndsWith(": HTTP 400: check AWS_REGION and AWS_ENDPOINT_URL"));
}

TEST_F(S3ClientTest, AnAnswerWithoutATagIsNone) {
  store_.SetInterference([](const auto& request, auto& response) {
    response.status = 200;
    if (request.method != "HEAD") {
      response.set_content("x", "text/plain");
    }
    return true;
  });
  const Client client = MakeClient();
  for (const Status& status : {client.Head("key").status(), client.Get("key", 9).status(),
                               client.Put("key", {.text = "x"}).status(),
                               client.UploadPart("key", "id", 4, {.text = "x"}, {}).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("tag"));
  }
}

TEST_F(S3ClientTest, AListingHasAllPagesInOrder) {
  const Client client = MakeClient();
  std::vector<std::string> keys;
  for (int i = 0; i < 7; ++i) {
    keys.push_back(fmt::format("p/{}/k {}", i / 3, i));
    store_.Set("bucket/" + keys.back(), "");
  }
  store_.Set("bucket/other", "");
  store_.Set("bucket/p/last", "");
  keys.push_back("p/last");
  for (const size_t page : {1U, 2U, 3U, 1000U}) {
    store_.SetPage(page);
    const auto all = client.List("p/", false);
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    EXPECT_EQ(all->keys, keys);
    EXPECT_THAT(all->folders, IsEmpty());
    const auto folders = client.List("p/", true);
    ASSERT_TRUE(folders.ok()) << folders.status().ToString();
    EXPECT_THAT(folders->keys, ElementsAre("p/last"));
    EXPECT_THAT(folders->folders, ElementsAre("p/0/", "p/1/", "p/2/"));
  }
  store_.TakeRequests();
  EXPECT_THAT(client.List("nothing", true)->keys, IsEmpty());
  EXPECT_THAT(store_.TakeRequests(),
              ElementsAre("GET /bucket/?delimiter=/&encoding-type=url&list-type=2&prefix=nothing"));
}

TEST_F(S3ClientTest, AListingThatNeverEndsIsRefused) {
  store_.SetInterference([](const auto&, auto& response) {
    response.set_content(
        "<ListBucketResult><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
        "application/xml");
    return true;
  });
  const Status status = MakeClient().List("p/", false).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "s3://bucket/p/: a page of a listing is empty, and not the last");
}

TEST_F(S3ClientTest, ARangeThatIsLongerThanItsPlaceIsRefused) {
  const Client client = MakeClient();
  store_.SetInterference([](const auto& request, auto& response) {
    ObjectStore::IgnoreRange(request);
    response.status = 206;
    response.set_header("Content-Range", "bytes 0-1/9");
    response.body = "abc";
    return true;
  });
  std::string part(2, ' ');
  const Status status = client.Read("key", "\"tag\"", 0, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("the answer is longer than it may be"));
}

TEST_F(S3ClientTest, AnObjectIsReadWithinItsBounds) {
  store_.Set("bucket/key", "0123456789");
  const auto client = std::make_shared<const Client>(MakeSettings(), "bucket");
  const auto file = checkpoint::OpenS3Object(client, "key", {});
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->bytes(), 10);
  EXPECT_EQ((*file)->name(), "s3://bucket/key");
  std::string part(4, ' ');
  const auto out = std::as_writable_bytes(std::span(part));
  ASSERT_TRUE((*file)->ReadAt(6, out).ok());
  EXPECT_EQ(part, "6789");
  EXPECT_EQ((*file)->ReadAt(7, out).code(), StatusCode::kDataLoss);
  EXPECT_EQ((*file)->ReadAt(-1, out).code(), StatusCode::kDataLoss);
  EXPECT_EQ(checkpoint::OpenS3Object(client, "none", {}).status().code(), StatusCode::kNotFound);
}

class UploadTest : public S3ClientTest {
 protected:
  Status Upload(const Client& client, size_t bytes, const Client::Cancelled& cancelled = {}) {
    content_ = Text(bytes);
    const std::string path = folder_.path() + "/file";
    EXPECT_TRUE(WriteFileAtomically(path, content_).ok());
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return UploadFile(client, "key", fd.get(), static_cast<int64_t>(bytes), cancelled);
  }
  static size_t CountOf(const std::vector<std::string>& lines, const std::string& part) {
    return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.find(part) != std::string::npos;
    }));
  }

  const TemporaryFolder folder_;
  std::string content_;
};

TEST_F(UploadTest, AFileUpToAPartGoesAtOnceAndALongerOneInParts) {
  const Client client = MakeClient();
  constexpr size_t kPart = 1 << 20;
  for (const auto& [bytes, parts] :
       std::vector<std::pair<size_t, size_t>>{{0, 0}, {kPart, 0}, {kPart + 1, 2}, {6 * kPart, 6}}) {
    store_.TakeRequests();
    const Status status = Upload(client, bytes);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(store_.Objects().at("bucket/key") == content_) << bytes;
    EXPECT_EQ(CountOf(store_.TakeRequests(), "partNumber="), parts) << bytes;
    EXPECT_EQ(store_.uploads(), 0U);
  }
}

TEST_F(UploadTest, APartThatIsRefusedEndsTheUploadAndLeavesNothing) {
  store_.SetInterference([](const auto& request, auto& response) {
    if (request.get_param_value("partNumber") != "1") {
      return false;
    }
    ObjectStore::Answer(response, 403, "AccessDenied");
    return true;
  });
  const Status status = Upload(MakeClient(), 30 << 20);
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(store_.uploads(), 0U);
  EXPECT_FALSE(store_.Objects().contains("bucket/key"));
  EXPECT_LT(CountOf(store_.TakeRequests(), "partNumber="), 30U) << "the rest is not sent";
}

TEST_F(UploadTest, ALostAnswerToTheEndIsNoFailure) {
  const Client client = MakeClient();
  std::atomic<bool> lost = false;
  store_.SetInterference([&](const auto& request, auto& response) {
    if (request.method != "POST" || request.has_param("uploads") || lost.exchange(true)) {
      return false;
    }
    // It has happened, and the answer says something else.
    store_.Set("bucket/key", content_);
    ObjectStore::Answer(response, 404, "NoSuchUpload");
    return true;
  });
  EXPECT_TRUE(Upload(client, 2 << 20).ok());
  store_.Erase("bucket/key");
  store_.SetInterference([&](const auto& request, auto& response) {
    if (request.method != "POST" || request.has_param("uploads")) {
      return false;
    }
    ObjectStore::Answer(response, 404, "NoSuchUpload");
    return true;
  });
  EXPECT_EQ(Upload(client, 2 << 20).code(), StatusCode::kNotFound);
}

TEST_F(UploadTest, AnEndThatSaysErrorWithin200IsTriedAgain) {
  std::atomic<int> ends = 0;
  store_.SetInterference([&](const auto& request, auto& response) {
    if (request.method != "POST" || request.has_param("uploads") || ends++ > 0) {
      return false;
    }
    ObjectStore::Answer(response, 200, "InternalError");
    return true;
  });
  EXPECT_TRUE(Upload(MakeClient(), 2 << 20).ok());
  EXPECT_EQ(ends, 2);
}

TEST_F(UploadTest, WhatIsGivenUpLeavesNothing) {
  const Status status = Upload(MakeClient(), 3 << 20, [] { return true; });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(store_.uploads(), 0U);
  EXPECT_FALSE(store_.Objects().contains("bucket/key"));
}

TEST_F(UploadTest, UnendedOnesAreListedAndAborted) {
  const Client client = MakeClient();
  store_.AddUpload("one", "bucket/p/a b");
  store_.AddUpload("two", "bucket/q/a");
  const auto uploads = client.Uploads("p/");
  ASSERT_TRUE(uploads.ok()) << uploads.status().ToString();
  ASSERT_THAT(*uploads, SizeIs(1));
  EXPECT_EQ(uploads->front().key, "p/a b");
  EXPECT_EQ(uploads->front().id, "one");
  EXPECT_TRUE(client.AbortUpload("p/a b", "one").ok());
  EXPECT_TRUE(client.AbortUpload("p/a b", "one").ok()) << "nothing there is fine";
  EXPECT_EQ(store_.uploads(), 1U);
}

}  // namespace
}  // namespace heddle::s3
