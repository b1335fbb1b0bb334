#include "elastic/store/etcd/etcd_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EtcdAddressTest, NamesMembersPrefixAndMore) {
  EXPECT_TRUE(IsEtcdAddress("etcd://x"));
  EXPECT_FALSE(IsEtcdAddress("/var/etcd"));
  const auto plain = ParseEtcdAddress("etcd://10.0.0.1:2379/heddle");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_THAT(plain->endpoints, ElementsAre("10.0.0.1:2379"));
  EXPECT_EQ(plain->prefix, "/heddle");
  EXPECT_FALSE(plain->tls());
  EXPECT_EQ(plain->lease, std::chrono::seconds(3));

  const auto whole = ParseEtcdAddress(
      "etcd://a:1,[fd00::7]:2379,c.d:65535/team-1/heddle_a.b"
      "?ca=/x/ca.pem&cert=/x/c.pem&key=k.pem&lease=60");
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_THAT(whole->endpoints, ElementsAre("a:1", "[fd00::7]:2379", "c.d:65535"));
  EXPECT_EQ(whole->prefix, "/team-1/heddle_a.b");
  EXPECT_EQ(whole->ca_file, "/x/ca.pem");
  EXPECT_EQ(whole->certificate_file, "/x/c.pem");
  EXPECT_EQ(whole->key_file, "k.pem");
  EXPECT_TRUE(whole->tls());
  EXPECT_EQ(whole->lease, std::chrono::seconds(60));
}

TEST(EtcdAddressTest, WhatIsWrongIsSaid) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/var/heddle", "expected etcd://"},
      {"etcd://", "'' is not HOST:PORT"},
      {"etcd:///heddle", "'' is not HOST:PORT"},
      {"etcd://a/heddle", "'a' is not HOST:PORT"},
      {"etcd://a:0/heddle", "'a:0'"},
      {"etcd://a:65536/heddle", "'a:65536'"},
      {"etcd://a:1x/heddle", "'a:1x'"},
      {"etcd://:1/heddle", "':1'"},
      {"etcd://fd00::7:1/heddle", "'fd00::7:1'"},
      {"etcd://u@a:1/heddle", "'u@a:1'"},
      {"etcd://a:1,/heddle", "'' is not HOST:PORT"},
      {"etcd://a:1", "'' is no prefix"},
      {"etcd://a:1/", "'/' is no prefix"},
      {"etcd://a:1/x/", "'/x/' is no prefix"},
      {"etcd://a:1//x", "'//x' is no prefix"},
      {"etcd://a:1/x y", "'/x y' is no prefix"},
      {"etcd://a:1/x?", "'' is unknown"},
      {"etcd://a:1/x?tls=1", "'tls' is unknown"},
      {"etcd://a:1/x?ca=", "ca names no file"},
      {"etcd://a:1/x?cert=c", "cert and key go together"},
      {"etcd://a:1/x?key=c", "cert and key go together"},
      {"etcd://a:1/x?lease=1", "lease=1: expected seconds, 2 to 60"},
      {"etcd://a:1/x?lease=61", "lease=61"},
      {"etcd://a:1/x?lease=3s", "lease=3s"}};
  for (const auto& [text, what] : cases) {
    const auto address = ParseEtcdAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(address.status().message(), HasSubstr(what)) << text;
    EXPECT_THAT(address.status().message(), HasSubstr("'" + text + "'"));
  }
}

}  // namespace
}  // namespace heddle::elastic
