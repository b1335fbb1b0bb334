/// \file
/// The parts of the object store's client that need no store: URLs, the environment, retries, sizes
/// of parts.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/system/file.h"
#include "checkpoint/storage/s3/block_cache.h"
#include "checkpoint/storage/s3/retry.h"
#include "checkpoint/storage/s3/settings.h"
#include "checkpoint/storage/s3/upload.h"
#include "checkpoint/storage/storage.h"

namespace heddle::s3 {
namespace {

using testing::HasSubstr;

TEST(S3Url, SplitsBucketAndKey) {
  EXPECT_EQ(*ParseUrl("s3://bucket/runs/a"), (Location{.bucket = "bucket", .key = "runs/a"}));
  EXPECT_EQ(*ParseUrl("s3://bucket/runs/a/"), (Location{.bucket = "bucket", .key = "runs/a"}));
  EXPECT_EQ(*ParseUrl("s3://my.bucket-1"), (Location{.bucket = "my.bucket-1", .key = ""}));
}

TEST(S3Url, RefusesWhatIsNone) {
  for (const char* url : {"",
                          "bucket/key",
                          "http://bucket/key",
                          "s3:/bucket",
                          "s3://",
                          "s3:///key",
                          "s3://ab/key",
                          "s3://Bucket/key",
                          "s3://-bucket/key",
                          "s3://bucket_/key",
                          "s3://bucket/a//b",
                          "s3://bucket/a/../b",
                          "s3://bucket/.",
                          "s3://bucket/a\nb",
                          "s3://bucket/a//",
                          "s3://bucket//a",
                          "s3://bucket/a\x7F",
                          "s3://buck`t/key",
                          "s3://buck{t/key",
                          "s3://buck:t/key",
                          "s3://bucket//.."}) {
    EXPECT_EQ(ParseUrl(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
  EXPECT_EQ(ParseUrl("http://bucket/key").status().message(),
            "http://bucket/key: expected s3://BUCKET/PREFIX");
  EXPECT_EQ(ParseUrl("s3://Bucket/key").status().message(),
            "s3://Bucket/key: 'Bucket' is no name of a bucket");
  EXPECT_EQ(ParseUrl("s3://bucket/a//b").status().message(),
            "s3://bucket/a//b: an empty segment, '.' or '..' is no part of a key");
  EXPECT_EQ(ParseUrl("s3://bucket/a\tb").status().message(),
            "s3://bucket/a\tb: keys have no control characters and at most 900 bytes");
}

TEST(S3Url, LengthsAndLettersMayReachTheirBounds) {
  EXPECT_EQ(ParseUrl("s3://bucket/" + std::string(900, 'k'))->key.size(), 900U);
  EXPECT_FALSE(ParseUrl("s3://bucket/" + std::string(901, 'k')).ok());
  EXPECT_TRUE(ParseUrl("s3://" + std::string(63, 'b') + "/key").ok());
  EXPECT_FALSE(ParseUrl("s3://" + std::string(64, 'b') + "/key").ok());
  EXPECT_EQ(ParseUrl("s3://a.z/key")->bucket, "a.z");
  EXPECT_EQ(ParseUrl("s3://0-9")->bucket, "0-9");
  EXPECT_EQ(ParseUrl("s3://bucket/...")->key, "...");
  EXPECT_EQ(ParseUrl("s3://bucket/a b~\xc3\xa4")->key, "a b~\xc3\xa4");
  EXPECT_EQ(ParseUrl("s3://bucket/")->key, "");
}

TEST(S3Url, JoinsPathsAndUrls) {
  EXPECT_EQ(checkpoint::JoinPath("s3://bucket/a/", "b"), "s3://bucket/a/b");
  EXPECT_EQ(checkpoint::JoinPath("folder", "b"), "folder/b");
  EXPECT_EQ(checkpoint::JoinPath("/", "b"), "/b");
  EXPECT_TRUE(checkpoint::IsUrl("s3://bucket"));
  EXPECT_FALSE(checkpoint::IsUrl("/s3/bucket"));
  EXPECT_THAT(checkpoint::OpenStorage("gs://bucket/a").status().message(), HasSubstr("s3://"));
}

TEST(S3Url, EncodesAllButUnreservedCharacters) {
  EXPECT_EQ(Encode("a-Z_0.~"), "a-Z_0.~");
  EXPECT_EQ(Encode("a b/c+%\xc3\xa4"), "a%20b%2Fc%2B%25%C3%A4");
  EXPECT_EQ(Encode("a b/c", "/"), "a%20b/c");
  EXPECT_EQ(Encode("@AZ[`az{/09:"), "%40AZ%5B%60az%7B%2F09%3A") << "next to the letters";
}

class S3Settings : public testing::Test {
 protected:
  Result<Settings> Read() const {
    return SettingsFrom([this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    });
  }
  std::map<std::string, std::string> variables_ = {{"AWS_ACCESS_KEY_ID", "id"},
                                                   {"AWS_SECRET_ACCESS_KEY", "hidden"}};
};

TEST_F(S3Settings, AddressesBuckets) {
  EXPECT_EQ(BaseUrl(*Read(), "bucket"), "https://bucket.s3.us-east-1.amazonaws.com/");
  variables_["AWS_DEFAULT_REGION"] = "eu-west-1";
  EXPECT_EQ(BaseUrl(*Read(), "my.bucket"), "https://s3.eu-west-1.amazonaws.com/my.bucket/");
  variables_["AWS_REGION"] = "eu-central-1";
  EXPECT_EQ(BaseUrl(*Read(), "bucket"), "https://bucket.s3.eu-central-1.amazonaws.com/");
  variables_["AWS_ENDPOINT_URL"] = "http://other:1";
  variables_["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:9000/";
  EXPECT_EQ(BaseUrl(*Read(), "bucket"), "http://127.0.0.1:9000/bucket/");
}

TEST_F(S3Settings, NamesTheVariableThatIsWrong) {
  const std::map<std::string, std::string> wrong = {{"AWS_ENDPOINT_URL", "127.0.0.1:9000"},
                                                    {"AWS_REGION", "eu/west"},
                                                    {"AWS_MAX_ATTEMPTS", "0"},
                                                    {"HEDDLE_STORE_TIMEOUT", "1h"},
                                                    {"AWS_SECRET_ACCESS_KEY", ""}};
  for (const auto& [name, value] : wrong) {
    const auto before = variables_;
    variables_[name] = value;
    EXPECT_THAT(Read().status().message(), HasSubstr(name));
    EXPECT_EQ(Read().status().message().find("hidden"), std::string::npos);
    variables_ = before;
  }
}

TEST_F(S3Settings, ReadsEachVariable) {
  variables_["AWS_SESSION_TOKEN"] = "token";
  variables_["AWS_CA_BUNDLE"] = "/etc/ca.pem";
  variables_["AWS_REGION"] = "";  // As if it were not set.
  variables_["AWS_ENDPOINT_URL"] = "https://other//";
  const auto settings = Read();
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->access_key, "id");
  EXPECT_EQ(settings->secret_key, "hidden");
  EXPECT_EQ(settings->session_token, "token");
  EXPECT_EQ(settings->ca_bundle, "/etc/ca.pem");
  EXPECT_EQ(settings->region, "us-east-1");
  EXPECT_EQ(settings->endpoint, "https://other");
  EXPECT_EQ(settings->most_attempts, 8);
  EXPECT_EQ(settings->timeout, std::chrono::seconds(60));
  EXPECT_EQ(settings->part_bytes, int64_t{16} << 20);
  variables_.erase("AWS_ACCESS_KEY_ID");
  EXPECT_EQ(Read().status().message(),
            "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
}

TEST_F(S3Settings, NumbersMayReachTheirBounds) {
  for (const auto& [attempts, seconds] :
       {std::pair("1", "1"), std::pair("100", "3600"), std::pair("", "")}) {
    variables_["AWS_MAX_ATTEMPTS"] = attempts;
    variables_["HEDDLE_STORE_TIMEOUT"] = seconds;
    const auto settings = Read();
    ASSERT_TRUE(settings.ok()) << settings.status().ToString();
    EXPECT_EQ(settings->most_attempts, *attempts == '\0' ? 8 : std::atoi(attempts));
    EXPECT_EQ(settings->timeout, std::chrono::seconds(*seconds == '\0' ? 60 : std::atoi(seconds)));
  }
  for (const char* const value : {"0", "101", "-1", "1x", "x", "99999999999999999999"}) {
    variables_["AWS_MAX_ATTEMPTS"] = value;
    EXPECT_EQ(Read().status().message(),
              fmt::format("AWS_MAX_ATTEMPTS={}: expected a whole number from 1 to 100", value));
  }
  variables_.erase("AWS_MAX_ATTEMPTS");
  variables_["HEDDLE_STORE_TIMEOUT"] = "3601";
  EXPECT_EQ(Read().status().message(),
            "HEDDLE_STORE_TIMEOUT=3601: expected a whole number from 1 to 3600");
}

TEST(S3Retry, BacksOffExponentiallyWithFullJitterWithinBounds) {
  const RetryLimits limits{.most_attempts = 6,
                           .total = std::chrono::seconds(60),
                           .first = std::chrono::milliseconds(100),
                           .most = std::chrono::seconds(1)};
  const auto pause = [&](int failures, double uniform) {
    return Seconds(*RetryPause(limits, failures, Duration::zero(), uniform));
  };
  EXPECT_EQ(pause(1, 0.0), 0);
  EXPECT_NEAR(pause(1, 0.5), 0.05, 1e-9);
  EXPECT_NEAR(pause(2, 0.5), 0.1, 1e-9);
  EXPECT_NEAR(pause(4, 0.5), 0.4, 1e-9);
  EXPECT_NEAR(pause(5, 0.5), 0.5, 1e-9) << "capped";
  EXPECT_FALSE(RetryPause(limits, 6, Duration::zero(), 0.0)) << "no attempt left";
  EXPECT_FALSE(RetryPause(limits, 1, std::chrono::seconds(60), 0.0)) << "no time left";
  EXPECT_TRUE(RetryPause(limits, 5, std::chrono::seconds(59), 0.5)) << "the last attempt";
  EXPECT_FALSE(RetryPause(limits, 5, std::chrono::milliseconds(59'600), 0.5))
      << "the pause itself would last too long";
}

TEST(S3Retry, TellsLaterFromNo) {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    EXPECT_TRUE(IsTransient(status, "")) << status;
  }
  for (const int status : {301, 400, 401, 403, 404, 409, 412, 416, 501}) {
    EXPECT_FALSE(IsTransient(status, "AccessDenied")) << status;
  }
  EXPECT_TRUE(IsTransient(400, "RequestTimeout"));
  EXPECT_TRUE(IsTransient(400, "SlowDown"));
  EXPECT_TRUE(IsTransient(400, "ServiceUnavailable"));
  EXPECT_TRUE(IsTransient(200, "InternalError")) << "an upload's end may fail with status 200";
}

TEST(S3Upload, PartsAreAtMostTenThousand) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  EXPECT_EQ(*PartBytes(0, 16 * kMiB), 16 * kMiB);
  EXPECT_EQ(*PartBytes(160'000 * kMiB, 16 * kMiB), 16 * kMiB);
  EXPECT_EQ(*PartBytes(160'000 * kMiB + 1, 16 * kMiB), 17 * kMiB);
  for (const int64_t bytes : {int64_t{5} << 40, (int64_t{5} << 40) - 1, (int64_t{1} << 40) + 7}) {
    const int64_t part = *PartBytes(bytes, 16 * kMiB);
    EXPECT_LE((bytes + part - 1) / part, 10'000) << bytes;
  }
  EXPECT_EQ(PartBytes((int64_t{5} << 40) + 1, 16 * kMiB).status().message(),
            "an object store takes files of at most 5497558138880 bytes, not of 5497558138881");
  EXPECT_EQ(*PartBytes(kMiB, 16 * kMiB + 1), 17 * kMiB) << "whole MiB";
}

TEST(S3BlockCache, GivesWhatTheObjectsHave) {
  BlockCache cache;
  constexpr int64_t kBytes = BlockCache::kBlockBytes * 5 / 2;
  const auto at = [](uint64_t object, int64_t i) {
    return static_cast<std::byte>((static_cast<uint64_t>(i) * 31 + object * 7) % 251);
  };
  int fetched = 0;
  const auto read = [&](uint64_t object, int64_t offset, size_t size) {
    std::vector<std::byte> out(size);
    EXPECT_TRUE(cache
                    .Read(object, kBytes, offset, out,
                          [&](int64_t from, std::span<std::byte> range) {
                            ++fetched;
                            EXPECT_LE(from + static_cast<int64_t>(range.size()), kBytes);
                            for (size_t i = 0; i < range.size(); ++i) {
                              range[i] = at(object, from + static_cast<int64_t>(i));
                            }
                            return Status::Ok();
                          })
                    .ok());
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(out[i], at(object, offset + static_cast<int64_t>(i))) << object << " " << offset;
    }
  };
  for (const uint64_t object : {1U, 2U, 17U}) {
    for (const int64_t offset :
         {int64_t{0}, int64_t{1}, BlockCache::kBlockBytes - 5, kBytes - 10}) {
      read(object, offset, 10);
    }
  }
  EXPECT_EQ(fetched, 9) << "three blocks of three objects";
  read(1, 3, static_cast<size_t>(BlockCache::kBlockBytes));
  EXPECT_EQ(fetched, 10) << "what is large goes past the cache";
  std::vector<std::byte> out(4);
  const auto fails = [](int64_t, std::span<std::byte>) { return UnavailableError("away"); };
  EXPECT_FALSE(cache.Read(3, kBytes, 0, out, fails).ok());
  read(3, 0, 4);
  // What a read that failed has left in the place of another object is not that object's.
  const auto breaks = [](int64_t, std::span<std::byte> range) {
    std::ranges::fill(range, std::byte{0xFF});
    return UnavailableError("broken off");
  };
  EXPECT_FALSE(cache.Read(3 + 16, kBytes, 0, out, breaks).ok());
  read(3, 0, 4);
}

TEST(StoragePlaces, AnUnknownSchemeNamesThoseThatThereAre) {
  for (const Status& status : {checkpoint::OpenStorage("ftp://host/path").status(),
                               checkpoint::OpenFile("ftp://host/path").status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "ftp://host/path: checkpoints lie in paths or at s3://BUCKET/PREFIX");
  }
}

TEST(StoragePlaces, WhoCannotBeReachedIsNotWhoHasNothing) {
  EXPECT_TRUE(checkpoint::IsUnreachable(UnavailableError("")));
  EXPECT_TRUE(checkpoint::IsUnreachable(DeadlineExceededError("")));
  EXPECT_TRUE(checkpoint::IsUnreachable(UnauthenticatedError("")));
  EXPECT_FALSE(checkpoint::IsUnreachable(NotFoundError("")));
  EXPECT_FALSE(checkpoint::IsUnreachable(DataLossError("")));
}

TEST(StoragePlaces, ATextIsNoLongerThanItMayBe) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/text";
  ASSERT_TRUE(WriteFileAtomically(path, "0123456789").ok());
  EXPECT_EQ(*checkpoint::ReadText(path, 10), "0123456789");
  const auto longer = checkpoint::ReadText(path, 9);
  EXPECT_EQ(longer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(longer.status().message(), path + ": 10 bytes, at most 9 are read");
}

}  // namespace
}  // namespace heddle::s3
