#include "server/access/api_keys.h"

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
  for (const char* wrong : {"", "key-of-alic", "key-of-alicee", "alice:key-of-alice", "KEY-OF-ALICE", "# team"})
    EXPECT_FALSE(keys->tenant_of(wrong).has_value()) << wrong;
}

TEST(ApiKeys, AKeyWithoutATenantIsOneOfItsOwn) {
  const ApiKeys keys = ApiKeys::parse("key-of-one\nkey-of-another\n:key-of-a-third\n").value();
  const std::string one = keys.tenant_of("key-of-one").value();
  EXPECT_EQ(one, "key:b525be134787a427");  // the beginning of its SHA-256
  EXPECT_NE(keys.tenant_of("key-of-another"), one);
  EXPECT_NE(keys.tenant_of("key-of-a-third"), "");
  // No tenant that a file names can be equal: a colon ends its name.
  EXPECT_EQ(ApiKeys::parse(one + ":key-of-two")->tenant_of("b525be134787a427:key-of-two"), "key");
}

TEST(ApiKeys, OneKeyHasOneTenant) {
  for (const char* text : {"alice:key-of-alice\n\nbob:key-of-alice\n", "alice:key-of-alice\n#\nkey-of-alice\n"}) {
    const Result<ApiKeys> keys = ApiKeys::parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_NE(keys.error().message.find("Lines 1 and 3 of the API keys"), std::string::npos) << keys.error().message;
    EXPECT_EQ(keys.error().message.find("key-of-alice"), std::string::npos);
  }
  EXPECT_EQ(ApiKeys::parse("alice:key-of-alice\nalice:key-of-alice\n")->tenant_of("key-of-alice"), "alice");
}

TEST(ApiKeys, InvalidKeyIsRefusedByItsLineWithoutItsText) {
  for (const char* text : {"good-key-1\nshort\n", "good-key-1\nwith blank inside\n", "good-key-1\ntab\there-it-is\n"}) {
    Result<ApiKeys> keys = ApiKeys::parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_NE(keys.error().message.find("Line 2"), std::string::npos);
    EXPECT_EQ(keys.error().message.find("blank inside"), std::string::npos);
  }
  EXPECT_FALSE(ApiKeys::parse("\n# nothing\n").ok());
  EXPECT_EQ(ApiKeys::parse("a:k", 1)->tenant_of("k"), "a");
  EXPECT_FALSE(ApiKeys::parse("a:", 0).ok());
}

TEST(ApiKeys, ALineMayHaveItsTenantsTerms) {
  const Result<ApiKeys> keys = ApiKeys::parse(
      "alice:key-of-alice weight=3 sequences=16 tokens-per-minute=60000 queue-share=0.5 max-wait=30\n"
      "alice:another-key\nbob:key-of-bob\nkey=with=signs\n");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_EQ(keys->tenant_of("another-key"), "alice");
  EXPECT_EQ(keys->terms().at("alice"), (TenantTerms{3, 16, 60000, 0.5, 30}));
  EXPECT_EQ(keys->terms().at("bob"), TenantTerms());
  EXPECT_TRUE(keys->tenant_of("key=with=signs"));
  for (const char* wrong : {"weight=0", "weight=-1", "weight=nan", "weight=1e9", "wieght=3", "sequences=0",
                            "sequences=1.5", "queue-share=2", "max-wait=", "tokens-per-minute=many", "=3"}) {
    const Result<ApiKeys> refused = ApiKeys::parse(std::string("\na:key-of-alice ") + wrong + "\n");
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find("Line 2"), std::string::npos) << refused.error().message;
    EXPECT_EQ(refused.error().message.find("key-of-alice"), std::string::npos);
  }
  EXPECT_FALSE(ApiKeys::parse("a:key-of-alice weight=3\na:key-of-alina weight=2\n").ok());
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
