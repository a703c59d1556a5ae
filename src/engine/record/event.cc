#include "engine/record/event.h"

#include <xxhash.h>

#include <algorithm>

#include "engine/record/codec.h"
#include "kernels/kv_layout.h"
#include "model/adapters.h"
#include "model/vision/prompt_pictures.h"
#include "sample/grammar/grammars.h"
#include "spec/drafts.h"
#include "text/output/answer_stops.h"
#include "text/output/breaker_set.h"
#include "text/output/reasoning_budget.h"
#include "text/output/stop_matcher.h"

namespace ibid::record {
namespace {

// Each names all fields of its struct. A field that is added does not compile here until it stands in the record too.

// A list of structs; read item by item, so that a length that lies costs no memory.
template <typename Ar, typename List, typename One>
void each(Ar& ar, List& list, One one) {
  size_t n = list.size();
  ar(n);
  for (size_t i = 0; i < n; ++i) {
    if constexpr (Ar::kReads) {
      if (!ar.ok() || !ar.may_grow(sizeof(list[0]))) return;
      list.emplace_back();
    }
    one(list[i]);
  }
}

template <typename Ar, typename Key>
void digest(Ar& ar, Key& key) {
  for (auto& byte : key) ar(byte);
}

// Types of keys and values as one number: of one type for both those of earlier versions, which wrote DType.
constexpr uint8_t kOfBoth[kKvTypeCount] = {0, 1, 2, 28, 64};
constexpr int kOfTwo = 128;
template <typename Ar, typename Types>
void kv_types_field(Ar& ar, Types& types) {
  auto number =
      static_cast<uint8_t>(kOfTwo + kKvTypeCount * static_cast<int>(types.key) + static_cast<int>(types.value));
  if (types.key == types.value) number = kOfBoth[static_cast<size_t>(types.key)];
  ar(number);
  if constexpr (Ar::kReads) {
    const int pair = number - kOfTwo;
    const auto* const both = std::ranges::find(kOfBoth, number);
    if (both != std::end(kOfBoth)) {
      types = static_cast<KvType>(both - kOfBoth);
    } else if (pair >= 0 && pair < kKvTypeCount * kKvTypeCount) {
      types = {static_cast<KvType>(pair / kKvTypeCount), static_cast<KvType>(pair % kKvTypeCount)};
    } else {
      ar.fail();
    }
  }
}

template <typename Ar, typename Options>
void options_fields(Ar& ar, Options& o) {
  auto& [block_len, kv_bytes, kv_dtype, step_tokens, max_sequences, max_waiting, max_rows, max_drafts, host_bytes,
         host_copy_seconds, disk_folder, disk_bytes, prefix_cache, policy, max_itl, model_digest, end_of_generation,
         measured_steps, states_bytes, host_states_bytes, state_step] = o;
  static_cast<void>(states_bytes), static_cast<void>(host_states_bytes),
      static_cast<void>(state_step);  // head_fields()
  static_cast<void>(max_drafts);      // a record has how many there were
  ar(block_len, kv_bytes);
  kv_types_field(ar, kv_dtype);
  ar(step_tokens, max_sequences, max_waiting, max_rows, host_bytes, host_copy_seconds, disk_folder, disk_bytes,
     prefix_cache, policy, max_itl, model_digest, end_of_generation);
  size_t n_measured = measured_steps.size();
  ar(n_measured);
  if constexpr (Ar::kReads) {
    if (n_measured > kMostMeasuredSteps) return ar.fail();
    measured_steps.resize(n_measured);
  }
  for (auto& step : measured_steps) {
    auto& [n_prompt_tokens, n_decode_tokens, n_rows, n_sequences, prompt_reads, decode_reads, draft_reads, n_new] =
        step.load;
    ar(n_prompt_tokens, n_decode_tokens, n_rows, n_sequences, prompt_reads, decode_reads, draft_reads, n_new,
       step.seconds);
  }
}

template <typename Ar, typename HeadRef>
void head_fields(Ar& ar, HeadRef& h) {
  auto& [version, arithmetic, model, isa, n_threads, is_redacted, has_text, started, vocab_size, context_len, window,
         n_experts, n_experts_used, end_of_generation, options, n_blocks, n_host_blocks, disk, n_states, n_host_states,
         sees_whole_pictures] = h;
  ar(version, arithmetic, model, isa, n_threads, is_redacted, has_text, started, vocab_size, context_len, window,
     n_experts, n_experts_used, end_of_generation);
  options_fields(ar, options);
  ar(n_blocks, n_host_blocks);
  auto& [layout, rope, image_bytes, state_image_bytes, opened_at, found] = disk;
  ar(layout, rope, image_bytes, opened_at);
  each(ar, found, [&](auto& entry) { digest(ar, entry.key), ar(entry.bytes, entry.age); });
  // Only of a model with recurrent layers, or that sees pictures whole: other records end here.
  if constexpr (Ar::kReads) {
    if (ar.at_end()) return;
  } else {
    if (n_states == 0 && !sees_whole_pictures) return;
  }
  ar(n_states, n_host_states, options.states_bytes, options.host_states_bytes, options.state_step, state_image_bytes);
  if constexpr (Ar::kReads) {
    if (ar.at_end()) return;
  } else {
    if (!sees_whole_pictures) return;
  }
  ar(sees_whole_pictures);
}

template <typename Ar, typename Inputs>
void disk_fields(Ar& ar, Inputs& inputs) {
  each(ar, inputs, [&](auto& input) {
    auto& [kind, was_taken, is_read, outcome, ticket, seconds, key, parent, tokens] = input;
    ar(kind);
    if constexpr (Ar::kReads) {
      if (kind > DiskInput::Kind::kDoneState) return ar.fail();
    }
    if (!input.is_done()) return ar(was_taken);
    ar(is_read, outcome, ticket, seconds);
    digest(ar, key);
    if (is_read && outcome == BlockIo::kDone) digest(ar, parent), ar(tokens);
    if constexpr (Ar::kReads) {
      if (outcome > BlockIo::kForeign || !(seconds >= 0 && seconds < 1e6)) ar.fail();
    }
  });
}

// But for what is compiled: stops and breakers, which stand after them as texts.
template <typename Ar, typename Params>
void sampling_fields(Ar& ar, Params& p) {
  auto& [repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n, no_repeat_ngram, dry_multiplier,
         dry_base, dry_allowed_len, dry_last_n, dry_breakers, logit_bias, banned, banned_sequences, allowed,
         temperature, dynatemp_range, dynatemp_exponent, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_probability,
         xtc_threshold, mirostat, mirostat_tau, mirostat_eta, seed, logprobs, processed_logprobs, logprob_tokens,
         min_tokens, ignore_eos] = p;
  static_cast<void>(dry_breakers);
  static_cast<void>(logprob_tokens);  // affects only what is reported of a draw: a record has the tokens
  ar(repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n, no_repeat_ngram, dry_multiplier, dry_base,
     dry_allowed_len, dry_last_n, logit_bias, banned, banned_sequences, allowed, temperature, dynatemp_range,
     dynatemp_exponent, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold, mirostat,
     mirostat_tau, mirostat_eta, seed, logprobs, processed_logprobs, min_tokens, ignore_eos);
}

template <typename Ar, typename RequestRef>
void request_fields(Ar& ar, RequestRef& r) {
  auto& [id, n, max_tokens, pooling, reports_progress, grammar, reasoning, adapter, pictures, to_encode, processor,
         tpot_target, ttft_target, max_wait, speculation, kv_eviction, prompt, sampling, stops, markup, show_special,
         prompt_logprobs, priority, tenant, cache_salt, weight, search, second_text, resume] = r;
  // Grammars stand after as their sources, as stops do; of speculation drafts are those that were computed then.
  static_cast<void>(stops), static_cast<void>(markup), static_cast<void>(grammar), static_cast<void>(reasoning);
  static_cast<void>(adapter);           // rare_fields(), by its digest
  static_cast<void>(pictures);          // rare_fields(), by their digests
  static_cast<void>(to_encode);         // nothing is left of it
  static_cast<void>(processor);         // a function
  static_cast<void>(second_text);       // of encoders, which are not recorded
  static_cast<void>(resume);            // rare_fields()
  static_cast<void>(kv_eviction);       // rare_fields()
  static_cast<void>(reports_progress);  // changes nothing that is computed
  ar(id, prompt);
  sampling_fields(ar, sampling);
  ar(n, max_tokens, show_special, prompt_logprobs, priority, tenant, cache_salt, weight, ttft_target, tpot_target,
     max_wait, pooling);
  auto& [max_drafts, verifier, free_alone, reads_prompt, prediction] = speculation;
  static_cast<void>(max_drafts), static_cast<void>(free_alone), static_cast<void>(prediction);
  ar(verifier, reads_prompt);
  auto& [kind, width, length_penalty, early_stopping, n_groups, diversity_penalty, scores_whole, alpha] = search;
  ar(kind, width, length_penalty, early_stopping, n_groups, diversity_penalty, scores_whole, alpha);
  if constexpr (Ar::kReads) {
    if (pooling > Pooling::kEach || pooling == Pooling::kRank || verifier > Verifier::kTypical) ar.fail();
  }
}

// A picture as it is recorded: where it stands and what it is, without its rows.
struct RecordedPicture {
  int32_t first = 0, rows = 0, columns = 0;
  std::string digest;
};

// Only of a request with an adapter, by its digest, with pictures, of an answer that goes on, or that evicts keys and
// values: others end before.
template <typename Ar, typename Digest, typename Pictures, typename Point, typename Eviction, typename Reason>
void rare_fields(Ar& ar, Digest& adapter, Pictures& pictures, Point& resume, Eviction& eviction, Reason& over) {
  auto& [method, keep, keep_share, window, sinks] = eviction;
  const bool evicts = method != KvMethod::kNone;
  if constexpr (Ar::kReads) {
    if (ar.at_end()) return;
  } else {
    if (adapter.empty() && pictures.empty() && resume.tokens.empty() && !evicts) return;
  }
  auto& [tokens, mirostat_mu] = resume;
  bool has_mu = mirostat_mu.has_value();
  float mu = mirostat_mu.value_or(0);
  ar(adapter, tokens, has_mu, mu, over);
  if constexpr (Ar::kReads) {
    if (has_mu) mirostat_mu = mu;
    if ((!has_mu && mu != 0) || over > FinishReason::kError) ar.fail();
    if (ar.at_end()) {
      if (adapter.empty() && tokens.empty()) ar.fail();
      return;
    }
  } else if (pictures.empty() && !evicts) {
    return;
  }
  each(ar, pictures, [&](auto& p) { ar(p.first, p.rows, p.columns, p.digest); });
  if constexpr (Ar::kReads) {
    if (ar.at_end()) {
      if (pictures.empty()) ar.fail();
      return;
    }
  } else if (!evicts) {
    return;
  }
  ar(method, keep, keep_share, window, sinks);
  if constexpr (Ar::kReads) {
    if (method == KvMethod::kNone || method > KvMethod::kStreaming) ar.fail();
  }
}

std::vector<RecordedPicture> recorded(const PromptPictures* pictures) {
  std::vector<RecordedPicture> out;
  for (const PlacedPicture& p : pictures != nullptr ? pictures->all() : std::span<const PlacedPicture>{}) {
    out.push_back({p.first,
                   p.rows->rows,
                   p.rows->columns,
                   {reinterpret_cast<const char*>(p.rows->digest.data()), p.rows->digest.size()}});
  }
  return out;
}

Status set_pictures(const std::vector<RecordedPicture>& recorded, Request& r) {
  if (recorded.empty()) return {};
  constexpr int32_t kMostSide = 1 << 15;
  std::vector<PlacedPicture> pictures;
  for (const RecordedPicture& p : recorded) {
    auto rows = std::make_shared<PictureRows>();
    const bool has_sides = p.rows >= 1 && p.rows <= kMostSide && p.columns >= 1 && p.columns <= kMostSide;
    if (!has_sides || p.digest.size() != rows->digest.size() || p.first < 0)
      return invalid("A recorded picture is not whole.");
    rows->rows = p.rows, rows->columns = p.columns, rows->row_len = kRecordedRowLen;
    std::memcpy(rows->digest.data(), p.digest.data(), p.digest.size());
    pictures.push_back({.first = p.first, .rows = std::move(rows)});
  }
  r.pictures = std::make_shared<const PromptPictures>(std::move(pictures));
  return {};
}

// What is compiled for a request, as it was given.
struct Texts {
  bool has_stops = false, include_stop = false, has_breakers = false;
  std::vector<std::string> stops, breakers;
  std::vector<TokenId> stop_ids;
  // Of the markup in which stop strings do not count.
  bool has_markup = false, finds_reasoning = false, is_in_reasoning = false, is_in_message = false, has_tools = false;
  AnswerFormat format;
  std::vector<std::string> tool_names, tool_schemas;
  grammar::Source grammar;
  bool closes_in_time = false;
  bool has_budget = false, is_reasoning = false;
  int32_t max_reasoning = 0;
  std::string begin_reasoning;
  std::vector<std::string> end_reasoning;
  std::string adapter;  // its digest; empty: none
  std::vector<RecordedPicture> pictures;
};
template <typename Ar, typename TextsRef>
void texts_fields(Ar& ar, TextsRef& t) {
  ar(t.has_stops, t.include_stop, t.has_breakers, t.stops, t.breakers, t.stop_ids);
  ar(t.has_markup, t.finds_reasoning, t.is_in_reasoning, t.is_in_message, t.has_tools, t.tool_names, t.tool_schemas);
  auto& [reasoning, tools, hidden] = t.format;
  ar(reasoning.begin, reasoning.end, reasoning.is_ended_by_call, hidden);
  auto& [kind, begins, ends, around, name_ends, key_begins, key_ends, value_ends, id_begin, name_begin, head_end,
         name_key, arguments_key, is_bare, is_name_key, has_ids_after, is_id_name, has_short_ids, is_inline,
         has_cdata] = tools;
  ar(kind, begins, ends, around, name_ends, key_begins, key_ends, value_ends, id_begin, name_begin, head_end, name_key,
     arguments_key, is_bare, is_name_key, has_ids_after, is_id_name, has_short_ids, is_inline, has_cdata);
  if constexpr (Ar::kReads) {
    if (kind > ToolFormat::Kind::kChannels) ar.fail();
  }
  auto& [language, is_strict, text, choices] = t.grammar;
  ar(language, is_strict, text, choices, t.closes_in_time);
  ar(t.has_budget, t.is_reasoning, t.max_reasoning, t.begin_reasoning, t.end_reasoning);
}

Texts texts_of(const Request& r) {
  Texts t;
  if (r.stops) {
    t.has_stops = true;
    t.include_stop = r.stops->include_stop();
    t.stops = r.stops->strings();
    t.stop_ids = r.stops->ids();
  }
  if (r.stops && r.markup) {
    const AnswerParser::Options& options = r.markup->parser;
    t.has_markup = true;
    t.format = *options.format;
    t.finds_reasoning = options.finds_reasoning;
    t.is_in_reasoning = options.is_reasoning;
    t.is_in_message = options.is_in_message;
    t.has_tools = options.tools != nullptr;
    for (size_t i = 0; t.has_tools && i < options.tools->size(); ++i) {
      const DeclaredTool& tool = (*options.tools)[i];
      t.tool_names.push_back(tool.name);
      t.tool_schemas.push_back(tool.parameters ? tool.parameters->text() : "");
    }
  }
  if (r.grammar) {
    t.grammar = r.grammar->recorded();
    t.closes_in_time = r.grammar->closes_in_time();
  }
  if (r.reasoning) {
    t.has_budget = true;
    t.max_reasoning = r.reasoning->max_tokens();
    t.is_reasoning = r.reasoning->markers().is_open;
    t.begin_reasoning = r.reasoning->markers().begin;
    t.end_reasoning = r.reasoning->markers().ends;
  }
  if (r.adapter) t.adapter = r.adapter->adapter->digest();
  t.pictures = recorded(r.pictures.get());
  if (r.sampling.dry_breakers) {
    t.has_breakers = true;
    t.breakers = r.sampling.dry_breakers->texts();
  }
  return t;
}

Result<std::shared_ptr<const AnswerMarkup>> markup_of(Texts& t) {
  auto markup = std::make_shared<AnswerMarkup>();
  AnswerParser::Options& options = markup->parser;
  options.format = std::make_shared<const AnswerFormat>(std::move(t.format));
  options.finds_reasoning = t.finds_reasoning;
  options.is_reasoning = t.is_in_reasoning;
  options.is_in_message = t.is_in_message;
  const ToolFormat& tools = options.format->tools;
  const auto is_text = [](const std::string& mark) { return !mark.empty(); };
  for (const auto* marks : {&tools.begins, &tools.ends, &tools.around, &tools.name_ends, &tools.key_begins,
                            &tools.key_ends, &tools.value_ends, &options.format->hidden})
    if (!std::ranges::all_of(*marks, is_text)) return invalid("An answer's markup has an empty marker.");
  const bool lacks_tags =
      tools.ends.empty() || tools.key_begins.empty() || tools.key_ends.empty() || tools.value_ends.empty();
  if ((tools.kind == ToolFormat::Kind::kTagged && lacks_tags) || t.tool_names.size() != t.tool_schemas.size())
    return invalid("An answer's markup is not whole.");
  if (!t.has_tools) return std::shared_ptr<const AnswerMarkup>(std::move(markup));
  auto declared = std::make_shared<std::vector<DeclaredTool>>();
  for (size_t i = 0; i < t.tool_names.size(); ++i) {
    std::shared_ptr<const Json> parameters;
    if (!t.tool_schemas[i].empty()) {
      ASSIGN_OR_RETURN(Json json, parse_json(t.tool_schemas[i], "a tool's schema"));
      parameters = std::make_shared<const Json>(std::move(json));
    }
    declared->push_back({std::move(t.tool_names[i]), std::move(parameters)});
  }
  options.tools = std::move(declared);
  return std::shared_ptr<const AnswerMarkup>(std::move(markup));
}

Status compile(Texts t, const std::shared_ptr<const Tokenizer>& tokenizer, grammar::Grammars* grammars, Request& r) {
  if (!tokenizer) t.stops.clear(), t.has_breakers = false;
  if (t.has_stops) {
    ASSIGN_OR_RETURN(r.stops, StopSet::compile(std::move(t.stops), std::move(t.stop_ids), t.include_stop));
  }
  if (t.has_markup && tokenizer) {
    ASSIGN_OR_RETURN(r.markup, markup_of(t));
  }
  if (t.has_budget && tokenizer) {
    if (t.end_reasoning.empty()) return invalid("A budget of reasoning that nothing ends.");
    r.reasoning = std::make_shared<const ReasoningBudget>(
        tokenizer, t.max_reasoning,
        ReasoningMarkers{std::move(t.begin_reasoning), std::move(t.end_reasoning), t.is_reasoning});
  }
  if (t.has_breakers) {
    ASSIGN_OR_RETURN(r.sampling.dry_breakers, BreakerSet::compile(std::move(t.breakers), tokenizer));
  }
  TRY(set_pictures(t.pictures, r));
  if (!t.adapter.empty())
    r.adapter = std::make_shared<const PlacedAdapter>(PlacedAdapter{Adapter::of_digest(std::move(t.adapter)), -1});
  if (t.grammar.language != grammar::Language::kNone && grammars != nullptr) {
    ASSIGN_OR_RETURN(std::shared_ptr<grammar::Compiled> compiled, grammars->get(t.grammar));
    r.grammar = std::make_shared<grammar::Matcher>(std::move(compiled), tokenizer->vocabulary().end_of_generation,
                                                   r.n_sequences(), t.closes_in_time);
  }
  return {};
}

template <typename Ar, typename TurnRef>
void turn_fields(Ar& ar, TurnRef& turn) {
  each(ar, turn.children, [&](auto& child) { ar(child.parent, child.token); });
  each(ar, turn.ends, [&](auto& reason) { ar(reason); });
  if constexpr (Ar::kReads) {
    if (std::ranges::any_of(turn.ends, [](FinishReason reason) { return reason > FinishReason::kError; })) ar.fail();
  }
}

template <typename Ar, typename StepRef>
void step_fields(Ar& ar, StepRef& step) {
  ar(step.was_run);
  if (!step.was_run) return;
  auto& d = step.digest;
  uint64_t batch_and_blocks = uint64_t{d.batch} << 32 | d.blocks, tokens_and_state = uint64_t{d.tokens} << 32 | d.state;
  ar(batch_and_blocks, tokens_and_state);
  if constexpr (Ar::kReads) {
    d = {static_cast<uint32_t>(batch_and_blocks >> 32), static_cast<uint32_t>(batch_and_blocks),
         static_cast<uint32_t>(tokens_and_state >> 32), static_cast<uint32_t>(tokens_and_state)};
  }
  size_t n_shares = step.shares.size();
  ar(n_shares);
  for (size_t i = 0; i < n_shares; ++i) {
    if constexpr (Ar::kReads) {
      if (!ar.ok() || !ar.may_grow(sizeof(step.shares[0]))) return;
      step.shares.emplace_back();
    }
    auto& s = step.shares[i];
    uint8_t flags = static_cast<uint8_t>(static_cast<uint8_t>(s.reason) << 3 | s.is_starved | s.is_unsound << 1 |
                                         s.has_failed << 2 | s.turn.has_value() << 7);
    ar(s.request, s.choice, s.n_drafts, s.n_drawn, flags);
    if constexpr (Ar::kReads) {
      s.is_starved = (flags & 1) != 0;
      s.is_unsound = (flags & 2) != 0;
      s.has_failed = (flags & 4) != 0;
      s.reason = static_cast<FinishReason>((flags & 0x7f) >> 3);
      if ((flags & 0x80) != 0) s.turn.emplace();
      if (s.reason > FinishReason::kError || s.n_drawn < 0 || s.n_drafts < 0 || s.n_drafts > kMaxDrafts) ar.fail();
    }
    if (s.turn) turn_fields(ar, *s.turn);
  }
  ar(step.tokens);
  if constexpr (Ar::kReads) {
    int64_t n_drawn = 0;
    for (const ShareOutcome& s : step.shares) n_drawn += s.n_drawn;
    if (n_drawn != static_cast<int64_t>(step.tokens.size())) ar.fail();
  }
}

bool is_plausible(const Head& h) {
  const EngineOptions& o = h.options;
  const bool has_block = o.block_len == 8 || o.block_len == 16 || o.block_len == 32;
  const auto within = [](int64_t x, int64_t from, int64_t to) { return from <= x && x <= to; };
  return has_block && o.policy <= PolicyKind::kFirstCome && within(o.step_tokens, 1, 65536) &&
         within(o.max_sequences, 1, 4096) && within(o.max_waiting, 0, 1'000'000) && within(o.max_rows, 1, 65536) &&
         within(h.vocab_size, 1, 1 << 24) && within(h.context_len, 1, 1 << 26) && within(h.window, 0, 1 << 26) &&
         within(h.n_experts, 0, 65536) && within(h.n_experts_used, 0, h.n_experts) && within(h.n_blocks, 1, 1 << 22) &&
         within(h.n_host_blocks, 0, 1 << 22) && within(h.n_states, 0, 1 << 22) && within(h.n_host_states, 0, 1 << 22) &&
         within(o.states_bytes, 0, int64_t{1} << 50) && within(o.host_states_bytes, 0, int64_t{1} << 50) &&
         o.state_step > 0 && within(o.host_bytes, 0, int64_t{1} << 50) && o.max_itl >= 0 && o.max_itl < 1e6 &&
         o.host_copy_seconds >= 0 && o.host_copy_seconds < 1e6 &&
         std::ranges::all_of(o.measured_steps,
                             [&](const MeasuredStep& m) {
                               return within(m.load.n_prompt_tokens, 0, 65536) &&
                                      within(m.load.n_decode_tokens, 0, 65536) && within(m.load.n_rows, 0, 65536) &&
                                      within(m.load.n_sequences, 0, 65536) &&
                                      within(m.load.prompt_reads, 0, int64_t{1} << 50) &&
                                      within(m.load.decode_reads, 0, int64_t{1} << 50) &&
                                      within(m.load.draft_reads, 0, int64_t{1} << 50) && m.seconds > 0 &&
                                      m.seconds < 1e6;
                             }) &&
         (o.disk_folder.empty() || h.disk.image_bytes > 0) && within(o.disk_bytes, 0, int64_t{1} << 50) &&
         within(h.disk.image_bytes, 0, int64_t{1} << 40) && within(h.disk.state_image_bytes, 0, int64_t{1} << 40) &&
         within(h.disk.opened_at, 0, int64_t{1} << 62) && h.disk.found.size() < size_t{1} << 22 &&
         std::ranges::all_of(h.disk.found,
                             [&](const DurableEntry& e) {
                               return within(e.bytes, 0, int64_t{1} << 40) && within(e.age, 0, int64_t{1} << 62);
                             }) &&
         within(o.kv_bytes, 1, int64_t{1} << 50);
}

}  // namespace

void encode(const Event& event, int64_t& last_reading, std::string& out) {
  Writer w(out);
  w(event.kind, event.readings.size());
  for (const int64_t reading : event.readings) w(reading - std::exchange(last_reading, reading));
  disk_fields(w, event.disk);
  switch (event.kind) {
    case EventKind::kHead:
      return head_fields(w, event.head);
    case EventKind::kSubmit: {
      w(event.was_taken);
      request_fields(w, *event.request);
      const Texts texts = texts_of(*event.request);
      texts_fields(w, texts);
      return rare_fields(w, texts.adapter, texts.pictures, event.request->resume, event.request->kv_eviction,
                         event.over);
    }
    case EventKind::kCancel:
      return w(event.id);
    case EventKind::kPreempt:
      return w(event.id, event.choice);
    case EventKind::kCancelAll:
      return;
    case EventKind::kStep:
      return step_fields(w, event.step);
    case EventKind::kCompletion:
    case EventKind::kEnd:
      return w(event.text);
  }
}

Result<Event> decode(std::string_view body, int64_t& last_reading, const std::shared_ptr<const Tokenizer>& tokenizer,
                     grammar::Grammars* grammars) {
  Event event;
  Reader r(body);
  uint64_t n_readings = 0;
  r(event.kind, n_readings);
  for (; n_readings > 0 && r.ok() && r.may_grow(sizeof(int64_t)); --n_readings) {
    int64_t more = 0;
    r(more);
    last_reading = static_cast<int64_t>(static_cast<uint64_t>(last_reading) + static_cast<uint64_t>(more));
    event.readings.push_back(last_reading);
  }
  disk_fields(r, event.disk);
  Status compiled;
  switch (event.kind) {
    case EventKind::kHead:
      head_fields(r, event.head);
      if (r.ok() && !is_plausible(event.head)) r.fail();
      break;
    case EventKind::kSubmit: {
      Request request;
      Texts texts;
      r(event.was_taken);
      request_fields(r, request);
      texts_fields(r, texts);
      rare_fields(r, texts.adapter, texts.pictures, request.resume, request.kv_eviction, event.over);
      if (request.search.kind > SearchKind::kContrastive || request.search.early_stopping > EarlyStopping::kNever ||
          !validate(request.search))
        r.fail();
      if (r.ok() && texts.grammar.language != grammar::Language::kNone &&
          (texts.grammar.language > grammar::kLastLanguage || request.n < 1 || request.n > 65536))
        r.fail();
      if (r.ok()) compiled = compile(std::move(texts), tokenizer, grammars, request);
      event.request = std::make_shared<const Request>(std::move(request));
      break;
    }
    case EventKind::kCancel:
      r(event.id);
      break;
    case EventKind::kPreempt:
      r(event.id, event.choice);
      break;
    case EventKind::kCancelAll:
      break;
    case EventKind::kStep:
      step_fields(r, event.step);
      break;
    case EventKind::kCompletion:
    case EventKind::kEnd:
      r(event.text);
      break;
    default:
      r.fail();
  }
  if (!r.ok() || !r.at_end()) {
    return invalid("An event of the record (" + std::string(kind_name(event.kind)) +
                   ") is not what this version writes; the ibid that recorded it may read it.");
  }
  if (!compiled) return invalid("A request of the record cannot be read: " + compiled.error().message);
  return event;
}

uint32_t checksum(std::string_view body) { return static_cast<uint32_t>(XXH3_64bits(body.data(), body.size())); }

std::string_view kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::kHead:
      return "head";
    case EventKind::kSubmit:
      return "submit";
    case EventKind::kCancel:
      return "cancel";
    case EventKind::kCancelAll:
      return "cancel all";
    case EventKind::kPreempt:
      return "preempt";
    case EventKind::kStep:
      return "step";
    case EventKind::kCompletion:
      return "completion";
    case EventKind::kEnd:
      return "end";
  }
  return "unknown";
}

}  // namespace ibid::record
