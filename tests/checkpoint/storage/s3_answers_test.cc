/// \file
/// What a store answers: what is read in it, and every answer that is none.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "checkpoint/storage/s3/answers.h"

namespace heddle::s3 {
namespace {

using testing::ElementsAre;

constexpr const char* kPage =
    R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>p/</Prefix>
<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
<NextContinuationToken>1ueGc&amp;==</NextContinuationToken>
<Contents><Key>p/a%20b</Key><Size>1</Size></Contents><Contents><Key>p/c+d</Key></Contents>
<CommonPrefixes><Prefix>p/step-00000040/</Prefix></CommonPrefixes></ListBucketResult>)";

TEST(S3Answers, ReadsAListing) {
  const auto page = ReadListing(kPage, "p/");
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_THAT(page->keys, ElementsAre("p/a b", "p/c d"));
  EXPECT_THAT(page->folders, ElementsAre("p/step-00000040/"));
  EXPECT_EQ(page->next, "1ueGc&==");
}

TEST(S3Answers, RefusesListingsThatAreNone) {
  const std::string page = kPage;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = page;
    changed.replace(changed.find(from), from.size(), to);
    return ReadListing(changed, "p/").status().code();
  };
  EXPECT_EQ(with("a%20b", "a%2"), StatusCode::kDataLoss);
  EXPECT_EQ(with("p/a%20b", "other"), StatusCode::kDataLoss) << "outside the prefix";
  EXPECT_EQ(with("p/a%20b", ""), StatusCode::kDataLoss);
  EXPECT_EQ(with("1ueGc&amp;==", ""), StatusCode::kDataLoss) << "it would never end";
  EXPECT_EQ(with("true", "maybe"), StatusCode::kDataLoss);
  EXPECT_EQ(with("ListBucketResult", "Listing"), StatusCode::kDataLoss);
  for (size_t size = 0; size + 1 < page.size(); ++size) {
    EXPECT_FALSE(ReadListing(page.substr(0, size), "p/").ok()) << size;
  }
  std::string many = "<ListBucketResult><IsTruncated>false</IsTruncated>";
  for (int i = 0; i < 1001; ++i) {
    many += "<Contents><Key>p/k</Key></Contents>";
  }
  EXPECT_FALSE(ReadListing(many + "</ListBucketResult>", "p/").ok());
}

std::string PageOf(const std::string& content) {
  return "<ListBucketResult>" + content + "</ListBucketResult>";
}

TEST(S3Answers, EntriesKeysAndTokensMayReachTheirBounds) {
  const std::string last = "<IsTruncated>false</IsTruncated>";
  const auto key = [&](const std::string& encoded) {
    return ReadListing(PageOf(last + "<Contents><Key>" + encoded + "</Key></Contents>"), "p/");
  };
  EXPECT_EQ(key("p/" + std::string(1022, 'k'))->keys.front().size(), 1024U);
  EXPECT_FALSE(key("p/" + std::string(1023, 'k')).ok());
  EXPECT_THAT(key("p/%41%7e")->keys, ElementsAre("p/A~"));
  for (const char* const odd : {"p/%4", "p/%", "p/%4g", "p/%g4", "p/%%41"}) {
    EXPECT_EQ(key(odd).status().message(),
              fmt::format("a listing of 'p/' names the key '{}'", odd));
  }
  const auto token = [&](size_t bytes) {
    return ReadListing(PageOf("<IsTruncated>true</IsTruncated><NextContinuationToken>" +
                              std::string(bytes, 't') + "</NextContinuationToken>"),
                       "p/");
  };
  EXPECT_EQ(token(4096)->next.size(), 4096U);
  EXPECT_EQ(token(4097).status().message(), "a listing has more pages, but no token for them");
  std::string entries = last;
  for (int i = 0; i < 1000; ++i) {
    entries += "<Contents><Key>p/k</Key></Contents>";
  }
  EXPECT_EQ(ReadListing(PageOf(entries), "p/")->keys.size(), 1000U);
  EXPECT_EQ(
      ReadListing(PageOf(entries + "<Contents><Key>p/k</Key></Contents>"), "p/").status().message(),
      "a page of a listing has more than 1000 entries");
  EXPECT_EQ(ReadListing(PageOf(""), "p/").status().message(),
            "a listing does not say whether it is the last page");
  EXPECT_EQ(ReadListing("<Other/>", "p/").status().message(),
            "the answer is a 'Other', not a ListBucketResult");
  EXPECT_EQ(ReadListing("<", "p/").status().message(), "the answer is no XML");
  // Blanks are no content, so that the whole answer has just as many bytes as it may have.
  const std::string page = PageOf(last);
  const std::string blanks(static_cast<size_t>(kMaxAnswerBytes) - page.size(), ' ');
  EXPECT_TRUE(ReadListing(page + blanks, "p/").ok());
  EXPECT_FALSE(ReadListing(page + blanks + " ", "p/").ok());
}

TEST(S3Answers, ReadsErrorsAndIgnoresPages) {
  const ErrorAnswer error =
      ReadError("<Error><Code>SlowDown</Code><Message>later\nplease</Message></Error>");
  EXPECT_EQ(error.code, "SlowDown");
  EXPECT_EQ(error.message, "later please");
  EXPECT_EQ(ReadError("<html><body>502</body></html>").code, "");
  EXPECT_EQ(ReadError("").code, "");
  EXPECT_EQ(ReadError("<Other><Code>SlowDown</Code></Other>").code, "") << "not an Error";
  const auto code = [](const std::string& text) {
    return ReadError("<Error><Code>" + text + "</Code></Error>").code;
  };
  EXPECT_EQ(code("a\x7F\x1F!~\xc3\xa4"), "a  !~\xc3\xa4");
  EXPECT_EQ(code(std::string(300, 'c')).size(), 300U);
  EXPECT_EQ(code(std::string(301, 'c')).size(), 300U);
  EXPECT_EQ(ReadError(std::string(100'000, '<')).code, "");
  const std::string entity =
      R"(<!DOCTYPE Error [<!ENTITY x SYSTEM "file:///etc/passwd">]><Error><Code>&x;</Code></Error>)";
  EXPECT_EQ(ReadError(entity).code, "&x;") << "nothing is opened";
}

TEST(S3Answers, ReadsUploads) {
  EXPECT_EQ(*ReadUploadId("<InitiateMultipartUploadResult><UploadId>a-1</UploadId>"
                          "</InitiateMultipartUploadResult>"),
            "a-1");
  EXPECT_FALSE(ReadUploadId("<InitiateMultipartUploadResult><UploadId>a\r\nb</UploadId>"
                            "</InitiateMultipartUploadResult>")
                   .ok());
  const auto uploads = ReadUploads(
      "<ListMultipartUploadsResult><Upload><Key>p/a.g1.h5</Key><UploadId>7</UploadId></Upload>"
      "</ListMultipartUploadsResult>",
      "p/");
  ASSERT_TRUE(uploads.ok());
  EXPECT_EQ(uploads->front().key, "p/a.g1.h5");
  EXPECT_EQ(uploads->front().id, "7");
  EXPECT_TRUE(IsCompleted("<CompleteMultipartUploadResult/>"));
  EXPECT_FALSE(IsCompleted("<Error><Code>InternalError</Code></Error>"));
  EXPECT_EQ(CompleteBody({"\"x\"", "y"}),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"x\"</ETag></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>y</ETag></Part></CompleteMultipartUpload>");
  EXPECT_FALSE(IsPlainTag("a\r\nx: y"));
}

TEST(S3Answers, IdsAndTagsArePrintableAndMayReachTheirBounds) {
  const auto id = [](const std::string& text) {
    return ReadUploadId("<InitiateMultipartUploadResult><UploadId>" + text +
                        "</UploadId></InitiateMultipartUploadResult>");
  };
  EXPECT_EQ(id(std::string(1024, 'i'))->size(), 1024U);
  EXPECT_EQ(*id("!~"), "!~");
  for (const std::string& bad : {std::string(1025, 'i'), std::string(), std::string("a b"),
                                 std::string("a\x7F"), std::string("\xc3\xa4")}) {
    EXPECT_EQ(id(bad).status().message(), "the answer has no id of an upload");
  }
  const auto upload = [](const std::string& text) {
    return ReadUploads("<ListMultipartUploadsResult><Upload><Key>p/a</Key><UploadId>" + text +
                           "</UploadId></Upload></ListMultipartUploadsResult>",
                       "p/");
  };
  EXPECT_TRUE(upload("7").ok());
  EXPECT_EQ(upload("").status().message(), "an upload of 'p/a' has no id");
  EXPECT_EQ(upload("a b").status().message(), "an upload of 'p/a' has no id");
  EXPECT_TRUE(IsPlainTag(std::string(256, 't')));
  EXPECT_FALSE(IsPlainTag(std::string(257, 't')));
  EXPECT_FALSE(IsPlainTag(""));
}

}  // namespace
}  // namespace heddle::s3
