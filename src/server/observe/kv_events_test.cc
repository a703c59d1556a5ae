// The bytes of KV events, as msgspec writes vLLM's classes (vllm/distributed/kv_events.py): spelled by hand from the
// MessagePack format.
#include "server/observe/kv_events.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

std::string hex_of(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string as_hex(std::string_view text) { return hex_of(std::string(text)); }

std::string fixed_text(std::string_view text) {  // of fewer than 32 bytes
  return hex_of(std::string(1, static_cast<char>(0xa0 | text.size()))) + as_hex(text);
}

std::vector<TokenId> tokens(std::vector<int32_t> ids) {
  std::vector<TokenId> out;
  for (const int32_t id : ids) out.push_back(TokenId{id});
  return out;
}

TEST(KvEvents, HaveTheBytesOfVllmsMaps) {
  KvEventBatch batch = {.sequence = 3, .time = 1.5, .events = {{}}};
  const std::string head =
      "93"
      "cb3ff8000000000000";
  EXPECT_EQ(hex_of(encode_kv_events(batch, 4, false)), head +
                                                           "91"
                                                           "81" +
                                                           fixed_text("type") + fixed_text("AllBlocksCleared") + "00");

  batch.events.clear();
  add_stored(batch.events, Tier::kDevice, 0x1122334455667788, false, 0, tokens({1, 127, 128, 65536}), "");
  add_stored(batch.events, Tier::kDevice, 7, true, 0x1122334455667788, tokens({255, 256, 65535, 5}), "");
  ASSERT_EQ(batch.events.size(), 1U) << "what follows in one chain is one event";
  EXPECT_EQ(hex_of(encode_kv_events(batch, 4, false)),
            head +
                "91"
                "88" +
                fixed_text("type") + fixed_text("BlockStored") + fixed_text("block_hashes") +
                "92"
                "cf1122334455667788"
                "07" +
                fixed_text("parent_block_hash") + "c0" + fixed_text("token_ids") +
                "98"
                "01"
                "7f"
                "cc80"
                "ce00010000"
                "ccff"
                "cd0100"
                "cdffff"
                "05" +
                fixed_text("block_size") + "04" + fixed_text("lora_id") + "c0" + fixed_text("medium") +
                fixed_text("GPU") + fixed_text("lora_name") +
                "c0"
                "00");

  batch.events.clear();
  add_removed(batch.events, Tier::kHost, 7);
  add_removed(batch.events, Tier::kHost, 8);
  add_removed(batch.events, Tier::kDevice, 8);
  ASSERT_EQ(batch.events.size(), 2U);
  EXPECT_EQ(hex_of(encode_kv_events(batch, 4, false)),
            head +
                "92"
                "83" +
                fixed_text("type") + fixed_text("BlockRemoved") + fixed_text("block_hashes") +
                "92"
                "07"
                "08" +
                fixed_text("medium") + fixed_text("CPU") + "83" + fixed_text("type") + fixed_text("BlockRemoved") +
                fixed_text("block_hashes") +
                "91"
                "08" +
                fixed_text("medium") + fixed_text("GPU") + "00");
}

TEST(KvEvents, OlderSubscribersGetArrays) {
  KvEventBatch batch = {.time = 0};
  add_stored(batch.events, Tier::kHost, 9, true, 8, tokens({1, 2}), "");
  add_removed(batch.events, Tier::kHost, 9);
  batch.events.emplace_back();
  EXPECT_EQ(hex_of(encode_kv_events(batch, 2, true)),
            "93"
            "cb0000000000000000"
            "93"
            "98" +
                fixed_text("BlockStored") +
                "91"
                "09"
                "08"
                "92"
                "01"
                "02"
                "02"
                "c0" +
                fixed_text("CPU") +
                "c0"
                "93" +
                fixed_text("BlockRemoved") +
                "91"
                "09" +
                fixed_text("CPU") + "91" + fixed_text("AllBlocksCleared") + "00");
}

TEST(KvEvents, TheFirstBlockHasItsSalt) {
  KvEventBatch batch = {.time = 0};
  add_stored(batch.events, Tier::kDevice, 1, false, 0, tokens({1}), "red\nsecret");
  add_stored(batch.events, Tier::kDevice, 2, true, 1, tokens({1}), "");
  const std::string bytes = hex_of(encode_kv_events(batch, 1, false));
  EXPECT_NE(bytes.find("9189" + fixed_text("type")), std::string::npos) << "a member more";
  EXPECT_NE(bytes.find(fixed_text("extra_keys") +
                       "92"
                       "91" +
                       fixed_text("red\nsecret") +
                       "c0"
                       "00"),
            std::string::npos);
}

TEST(KvEvents, LongListsHaveTheirLengthsInMoreBytes) {
  KvEventBatch batch = {.time = 0};
  add_stored(batch.events, Tier::kDevice, 1, false, 0, tokens(std::vector<int32_t>(70000, 3)), std::string(300, 'x'));
  const std::string bytes = hex_of(encode_kv_events(batch, 1, false));
  EXPECT_NE(bytes.find(fixed_text("token_ids") + "dd00011170"
                                                 "03"),
            std::string::npos);
  EXPECT_NE(bytes.find("da012c" + as_hex("xxx")), std::string::npos);
  batch.events.clear();
  add_stored(batch.events, Tier::kDevice, 1, false, 0, tokens(std::vector<int32_t>(16, 3)), std::string(40, 'x'));
  const std::string short_bytes = hex_of(encode_kv_events(batch, 1, false));
  EXPECT_NE(short_bytes.find(fixed_text("token_ids") + "dc0010"
                                                       "03"),
            std::string::npos);
  EXPECT_NE(short_bytes.find("d928" + as_hex("xxx")), std::string::npos);
}

}  // namespace
}  // namespace ibid
