#include "server/api_keys.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

WebRequest with(const char* name, const char* value) {
  WebRequest request;
  request.headers.emplace_back(name, value);
  return request;
}

TEST(ApiKeys, EachKeyNamesItsTenant) {
  Result<ApiKeys> keys = ApiKeys::parse("# team\nalice:key-of-alice\n\n  key-of-nobody \r\nbob : key-of-bob\n");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_EQ(keys->tenant_of("key-of-alice"), "alice");
  EXPECT_EQ(keys->tenant_of("key-of-bob"), "bob");
  EXPECT_EQ(keys->tenant_of("key-of-nobody"), "");
  for (const char* wrong : {"", "key-of-alic", "key-of-alicee", "alice:key-of-alice", "KEY-OF-ALICE", "# team"})
    EXPECT_FALSE(keys->tenant_of(wrong).has_value()) << wrong;
}

TEST(ApiKeys, WhatIsNoKeyIsRefusedWithItsLineAndWithoutItsText) {
  for (const char* text : {"good-key-1\nshort\n", "good-key-1\nwith blank inside\n", "good-key-1\ntab\there-it-is\n"}) {
    Result<ApiKeys> keys = ApiKeys::parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_NE(keys.error().message.find("Line 2"), std::string::npos);
    EXPECT_EQ(keys.error().message.find("blank inside"), std::string::npos);
  }
  EXPECT_FALSE(ApiKeys::parse("\n# nothing\n").ok());
}

TEST(ApiKeys, AreFoundWhereClientsPutThem) {
  EXPECT_EQ(ApiKeys::key_in(with("authorization", "Bearer abc")), "abc");
  EXPECT_EQ(ApiKeys::key_in(with("authorization", "bEARER  abc ")), "abc");
  EXPECT_EQ(ApiKeys::key_in(with("x-api-key", "abc")), "abc");
  EXPECT_EQ(ApiKeys::key_in(with("authorization", "Basic dXNlcjphOmI=")), "a:b");
  EXPECT_EQ(ApiKeys::key_in(with("authorization", "Basic !!!")), "");
  EXPECT_EQ(ApiKeys::key_in(with("authorization", "Bearer")), "");
  EXPECT_EQ(ApiKeys::key_in(with("authorization", "Digest abc")), "");
}

}  // namespace
}  // namespace ibid
