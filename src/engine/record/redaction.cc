#include "engine/record/redaction.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/sha256.h"
#include "engine/record/step_digest.h"
#include "model/vision/prompt_pictures.h"

namespace ibid::record {
namespace {

constexpr size_t kMaxNames = 1 << 16;  // salts may be many; those that are forgotten get another name

}  // namespace

struct Redaction::Cipher {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  ~Cipher() { EVP_CIPHER_CTX_free(context); }
};

Redaction::Redaction() : cipher_(std::make_unique<Cipher>()) {
  unsigned char key[16];
  CHECK(RAND_bytes(key, sizeof key) == 1, "the system gives no random bytes");
  CHECK(EVP_EncryptInit_ex(cipher_->context, EVP_aes_128_ecb(), nullptr, key, nullptr) == 1);
  EVP_CIPHER_CTX_set_padding(cipher_->context, 0);
}

Redaction::~Redaction() = default;

Redaction::Block Redaction::encrypt(Block block) const {
  Block out;
  int n = 0;
  CHECK(EVP_EncryptUpdate(cipher_->context, out.data(), &n, block.data(), static_cast<int>(block.size())) == 1);
  return out;
}

Redaction::Block Redaction::chain_of(const std::string& scope) const {
  const Sha256Digest digest = sha256(scope);
  Block block;
  std::memcpy(block.data(), digest.data(), block.size());
  return encrypt(block);
}

// One of n, for the tokens [from, to) after this chain.
uint32_t Redaction::drawn(const Block& chain, uint32_t from, uint32_t to, uint32_t n) const {
  Block block = chain;
  const uint32_t words[2] = {from, to};
  for (size_t i = 0; i < sizeof words; ++i) block[i] ^= reinterpret_cast<const unsigned char*>(words)[i];
  uint64_t wide = 0;
  std::memcpy(&wide, encrypt(block).data(), sizeof wide);
  return static_cast<uint32_t>(wide % n);
}

TokenId Redaction::replace(Block& chain, TokenId token) const {
  const int32_t id = raw(token);
  uint32_t low = 0, high = std::max(vocab_size_, kNumbers);
  // The vocabulary begins somewhere among three times as many places, lest its ends be known by theirs.
  uint32_t from = 0, to = std::min(3 * vocab_size_, high);
  const uint32_t place = static_cast<uint32_t>(id) + drawn(chain, 0, 0, to - vocab_size_ + 1);
  while (to - from > 1) {
    const uint32_t middle = from + (to - from) / 2;
    const uint32_t n_spare = (high - low) - (to - from);
    const uint32_t cut = low + (middle - from) + drawn(chain, from, to, n_spare + 1);
    const bool is_left = place < middle;
    (is_left ? to : from) = middle;
    (is_left ? high : low) = cut;
  }
  const TokenId out{static_cast<int32_t>(low + drawn(chain, from, to, high - low))};
  for (size_t i = 0; i < sizeof id; ++i) chain[8 + i] ^= reinterpret_cast<const unsigned char*>(&id)[i];
  chain = encrypt(chain);
  return out;
}

std::string Redaction::name_for(std::map<std::string, std::string>& names, const std::string& name, const char* kind) {
  if (name.empty()) return "";
  if (const auto known = names.find(name); known != names.end()) return known->second;
  if (names.size() >= kMaxNames) names.clear();
  return names.emplace(name, kind + std::to_string(++n_names_)).first->second;
}

// Which pictures are alike stays.
std::shared_ptr<const PromptPictures> Redaction::redacted(const PromptPictures& pictures) {
  std::vector<PlacedPicture> out;
  for (const PlacedPicture& p : pictures.all()) {
    auto rows = std::make_shared<PictureRows>();
    rows->rows = p.rows->rows, rows->columns = p.rows->columns, rows->row_len = p.rows->row_len;
    const std::string digest(reinterpret_cast<const char*>(p.rows->digest.data()), p.rows->digest.size());
    rows->digest = sha256(name_for(pictures_, digest, "picture-"));
    out.push_back({.first = p.first, .rows = std::move(rows)});
  }
  return std::make_shared<const PromptPictures>(std::move(out));
}

void Redaction::redact(Request& r, Live& live) {
  Block chain = chain_of(r.tenant + '\n' + r.cache_salt);
  for (TokenId& token : r.prompt) token = replace(chain, token);
  for (TokenId& token : r.resume.tokens) token = replace(chain, token);
  live.chains.assign(static_cast<size_t>(r.n_sequences()), chain);
  live.n_left = r.n_sequences();
  if (r.searches()) live.running = {0};
  r.tenant = name_for(tenants_, r.tenant, "tenant-");
  r.cache_salt = name_for(salts_, r.cache_salt, "salt-");
  // How many rows are read is scheduling; the rest of the sampler's settings is not.
  if (r.pictures != nullptr) r.pictures = redacted(*r.pictures);
  r.sampling = {.logprobs = r.sampling.logprobs};
  r.stops = nullptr;
  r.grammar = nullptr;
  r.reasoning = nullptr;
  r.markup = nullptr;
}

void Redaction::redact(Step& step) {
  size_t at = 0;
  for (ShareOutcome& share : step.shares) {
    const auto live = live_.find(share.request);
    for (int32_t i = 0; i < share.n_drawn; ++i, ++at) {
      const bool is_known = live != live_.end() && static_cast<size_t>(share.choice) < live->second.chains.size();
      step.tokens[at] =
          is_known ? replace(live->second.chains[static_cast<size_t>(share.choice)], step.tokens[at]) : TokenId{0};
    }
    if (live == live_.end()) {
      if (share.turn) share.turn->children.clear();
      continue;
    }
    if (share.turn) redact(*share.turn, live->second);
    if (!live->second.running.empty()) {  // ends with all of its seats at once
      const bool is_over = share.turn && share.turn->children.empty();
      if (is_over || share.reason != FinishReason::kNone || share.is_starved || share.is_unsound) live_.erase(live);
      continue;
    }
    const bool has_ended = share.reason != FinishReason::kNone;
    if (share.is_starved || share.is_unsound || (has_ended && --live->second.n_left == 0)) live_.erase(live);
  }
  step.digest.tokens = tokens_digest(step);
}

void Redaction::redact(SearchTurn& turn, Live& live) const {
  if (turn.children.empty()) return;
  std::vector<Block> chains = live.chains;
  std::vector<int32_t> next = seats_of(turn.children, live.running);
  for (size_t i = 0; i < next.size(); ++i) {
    Block chain = live.chains[static_cast<size_t>(live.running[static_cast<size_t>(turn.children[i].parent)])];
    turn.children[i].token = replace(chain, turn.children[i].token);
    chains[static_cast<size_t>(next[i])] = chain;
  }
  live.chains = std::move(chains), live.running = std::move(next);
}

void Redaction::redact(Event& event) {
  switch (event.kind) {
    case EventKind::kHead:
      vocab_size_ = static_cast<uint32_t>(std::max(1, event.head.vocab_size));
      event.head.is_redacted = true;
      event.head.vocab_size = static_cast<int32_t>(std::max(vocab_size_, kNumbers));
      event.head.end_of_generation.clear();
      event.head.options.end_of_generation.clear();
      break;
    case EventKind::kSubmit: {
      auto request = std::make_shared<Request>(*event.request);
      Live live;
      redact(*request, live);
      if (event.was_taken && event.over == FinishReason::kNone) live_[request->id] = std::move(live);
      event.request = std::move(request);
      break;
    }
    case EventKind::kCancel:
      live_.erase(event.id);
      break;
    case EventKind::kCancelAll:
      live_.clear();
      break;
    case EventKind::kStep:
      redact(event.step);
      break;
    default:
      break;
  }
}

}  // namespace ibid::record
