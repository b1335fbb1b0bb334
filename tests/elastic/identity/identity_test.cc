// Roles and names as text and as URIs.
#include "elastic/identity/identity.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

TEST(IdentityTest, IsReadAsItIsWritten) {
  for (const Identity& identity :
       {Identity{Role::kCoordinator, ""}, Identity{Role::kOperator, ""},
        Identity{Role::kViewer, ""}, Identity{Role::kWorker, "node-3.rack_7"}}) {
    const auto text = ParseIdentity(IdentityText(identity));
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_EQ(*text, identity);
    const auto uri = ParseIdentityUri(IdentityUri(identity));
    ASSERT_TRUE(uri.ok()) << uri.status().ToString();
    EXPECT_EQ(*uri, identity);
  }
  EXPECT_EQ(IdentityUri({Role::kWorker, "a"}), "heddle:worker/a");
}

TEST(IdentityTest, NothingElseIsRead) {
  for (const char* text :
       {"", "worker", "worker/", "operator/", "operator/a", "root", "Worker/a", "worker/a/b",
        "worker/..", "worker/.a", "worker/a b", "worker/a,DNS:coordinator.heddle", " operator"}) {
    EXPECT_EQ(ParseIdentity(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseIdentity("worker/" + std::string(65, 'a')).ok());
  EXPECT_FALSE(ParseIdentity(std::string("worker/a\0b", 10)).ok());
  for (const char* uri : {"operator", "heddle:", "Heddle:operator", "https:operator", ""}) {
    EXPECT_FALSE(ParseIdentityUri(uri).ok()) << uri;
  }
}

}  // namespace
}  // namespace heddle::elastic
