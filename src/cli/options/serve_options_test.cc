#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/options/command_line.h"
#include "cli/options/help.h"
#include "cli/options/presets.h"
#include "source_paths.h"

namespace ibid::cli {
namespace {

struct Parsed {
  ServeOptions options;
  std::string error;
};

Parsed parse(const std::string& flags) {
  Parsed out;
  CLI::App app;
  add_serve_options(&app, out.options);
  try {
    app.parse(flags);
  } catch (const CLI::ParseError& e) {
    out.error = e.what();
  }
  return out;
}

// As the shell hands them over, each a word.
Parsed parse_words(std::vector<std::string> words) {
  Parsed out;
  CLI::App app;
  add_serve_options(&app, out.options);
  try {
    std::ranges::reverse(words);
    app.parse(std::move(words));
    check_variables(app);
  } catch (const CLI::ParseError& e) {
    out.error = e.what();
  }
  return out;
}

// An unset variable of a shell gives an empty word, or none, and then the next flag stands in the value's place.
TEST(ServeOptions, NoFlagTakesAnEmptyValueOrTheNextFlagForOne) {
  ServeOptions options;
  CLI::App app;
  add_serve_options(&app, options);
  int n_paths = 0;
  std::set<std::string> all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // it takes no value
    const std::string name = option->get_name();
    all.insert(name);
    const bool is_word = !name.starts_with("--");  // MODEL, and those after it, which come to its place here
    for (const char* value : {"", "--slots"}) {
      if (is_word && *value != '\0') continue;
      const Parsed p = is_word ? parse_words({value}) : parse_words({name, value});
      EXPECT_TRUE(p.error.starts_with(is_word ? "MODEL" : name)) << name << " takes '" << value << "': " << p.error;
    }
    n_paths += option->get_type_name() == "FILE" || option->get_type_name() == "DIR" ||
               option->get_type_name() == "PATH" || option->get_type_name() == "KEY";
  }
  EXPECT_GE(n_paths, 12);
  for (const char* name : {"--api-key", "--api-key-file", "--ssl-cert-file", "--ssl-key-file", "--uds", "--record",
                           "--log-file", "--files-dir", "--cache-disk", "--allow-host", "--host", "--cors-origin"})
    EXPECT_TRUE(all.contains(name)) << name;
  EXPECT_EQ(parse_words({"--api-key-file", ""}).error,
            "--api-key-file: '' names no file; is a variable of the shell unset?");
  EXPECT_EQ(parse_words({"--files-dir", "--slots"}).error,
            "--files-dir: '--slots' is a flag and names no folder; is a variable of the shell unset? (./--slots would "
            "be a file of that name)");
  EXPECT_EQ(parse_words({"--files-dir", "./--slots"}).error, "");
}

TEST(ServeOptions, AnEmptyVariableInAFlagsPlaceIsRefused) {
  ASSERT_EQ(::setenv("IBID_API_KEY", "", 1), 0);
  const std::string error = parse_words({}).error;
  EXPECT_NE(error.find("IBID_API_KEY: the variable is set and empty, and stands for --api-key"), std::string::npos)
      << error;
  EXPECT_EQ(parse_words({"--api-key", "12345678"}).error, "");
  ::setenv("IBID_API_KEY", "of-the-environment", 1);
  EXPECT_EQ(parse_words({}).options.server.api_keys, std::vector<std::string>{"of-the-environment"});
  ::unsetenv("IBID_API_KEY");
  EXPECT_EQ(parse_words({}).error, "");
}

TEST(ServeOptions, AFlagWithNothingAfterItsEqualsSignIsFound) {
  const auto found = [](std::vector<const char*> words) {
    words.insert(words.begin(), "ibid");
    return flag_without_value(static_cast<int>(words.size()), words.data());
  };
  EXPECT_EQ(found({"serve", "--log-file=", "model.gguf"}), "--log-file");  // else the model would be the log
  EXPECT_EQ(found({"serve", "--model", "a=b", "--record=a="}), "");
  EXPECT_EQ(found({"run", "--", "--log-file="}), "");
}

TEST(ServeOptions, AFlagThatMayBeRepeatedLeavesTheModelAlone) {
  const Parsed p = parse("--api-key 12345678 --allow-host a.example --allow-host b.example model.gguf");
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.options.model.model, "model.gguf");
  EXPECT_EQ(p.options.server.allowed_hosts, (std::vector<std::string>{"a.example", "b.example"}));
}

TEST(ServeOptions, SeveralModelsAreNamedOneByOneOrByAFolder) {
  const Parsed p = parse("a.gguf b.gguf c.gguf --model x=d.gguf --model y=e=f.gguf --models-dir models --pooling last");
  ASSERT_EQ(p.error, "");
  EXPECT_TRUE(p.options.names_model);
  EXPECT_EQ(p.options.model.model, "a.gguf");
  EXPECT_EQ(p.options.more_models, (std::vector<std::string>{"b.gguf", "c.gguf"}));
  EXPECT_EQ(p.options.named_models, (std::vector<std::string>{"x=d.gguf", "y=e=f.gguf"}));
  EXPECT_EQ(p.options.models_folder, "models");
  EXPECT_EQ(p.options.pooling, Pooling::kLast);
  EXPECT_EQ(parse("--pooling none a.gguf").options.pooling, Pooling::kEach);
  const Parsed few = parse("a.gguf b.gguf --models-max 2 --no-models-autoload");
  EXPECT_EQ(few.options.max_models, 2);
  EXPECT_TRUE(p.options.server.autoload && !few.options.server.autoload);
  EXPECT_FALSE(parse("--model x=d.gguf").options.names_model);
  EXPECT_EQ(parse("-m d.gguf").options.named_models, std::vector<std::string>{"d.gguf"});
  for (const char* wrong : {"--model =d.gguf", "--model x=", "--pooling max"})
    EXPECT_NE(parse(wrong).error, "") << wrong;
}

TEST(ServeOptions, FlagsFillTheServersLimits) {
  const Parsed p = parse(
      "model.gguf --port 0 --no-page --no-request-log --log-file log --io-threads 3 --max-body-bytes 1.5M "
      "--send-buffer 64KiB --write-timeout 0.5 --kv-memory 2G --max-waiting 0 --max-n 2 --max-json-depth 8 "
      "--max-json-values 1000 --allow-priority --api-key a:12345678 --api-key 87654321");
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.options.model.model, "model.gguf");
  const ServerOptions& s = p.options.server;
  EXPECT_EQ(s.port, 0);
  EXPECT_FALSE(s.page);
  EXPECT_FALSE(s.log_requests);
  EXPECT_EQ(s.log_file, "log");
  EXPECT_EQ(s.io_threads, 3);
  EXPECT_EQ(s.max_body_bytes, 3 << 19);
  EXPECT_EQ(s.send_buffer_bytes, 64 << 10);
  EXPECT_EQ(s.write_timeout, 0.5);
  EXPECT_EQ(p.options.kv_bytes, int64_t{2} << 30);
  EXPECT_EQ(p.options.max_waiting, 0);
  EXPECT_EQ(s.api.max_n, 2);
  EXPECT_EQ(s.api.json.max_depth, 8u);
  EXPECT_EQ(s.api.json.max_values, 1000u);
  EXPECT_TRUE(s.api.allow_priority);
  EXPECT_EQ(s.api_keys, (std::vector<std::string>{"a:12345678", "87654321"}));
}

TEST(ServeOptions, APresetIsADefaultOfOtherFlagsWhateverTheirOrder) {
  const Parsed p = parse("--max-sequences 7 --for offline model.gguf");
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.options.max_sequences, 7);
  EXPECT_EQ(p.options.max_tokens_per_step, 1024);
  EXPECT_EQ(p.options.policy, PolicyKind::kFirstCome);
  EXPECT_EQ(parse("--for eval --max-itl 50ms model.gguf").options.max_itl, 0.05);
  EXPECT_FALSE(parse("--for eval model.gguf").options.sampling.empty());
  EXPECT_TRUE(parse("--for agent model.gguf").options.server.api.allow_priority);
  EXPECT_EQ(parse("--for fun model.gguf").error,
            "--for: unknown value 'fun'; expected chat, offline, eval, agent or batch");
  // Chat is what there is without one.
  const ServeOptions chat = parse("--for chat model.gguf").options, none = parse("model.gguf").options;
  EXPECT_EQ(chat.max_sequences, none.max_sequences);
  EXPECT_EQ(chat.max_tokens_per_step, none.max_tokens_per_step);
  EXPECT_EQ(chat.max_waiting, none.max_waiting);
  EXPECT_EQ(chat.max_itl, none.max_itl);
  EXPECT_EQ(chat.policy, none.policy);
}

// A queue of a million contexts was 61 GiB, and the server of that preset ended before it began.
TEST(ServeOptions, NoPresetsQueueTakesMoreThanASmallMachineHas) {
  for (const Preset& preset : presets()) {
    const int64_t places = int64_t{preset.max_sequences} + preset.max_waiting;
    EXPECT_LE(places * int64_t{8192} * 2 * static_cast<int64_t>(sizeof(TokenId)), 512 << 20) << preset.name;
  }
}

TEST(ServeOptions, ThePageHasThePresets) {
  std::ostringstream page;
  page << std::ifstream(source_dir() + "/docs/users/serving.md").rdbuf();
  EXPECT_NE(page.str().find(presets_markdown()), std::string::npos) << presets_markdown();
}

TEST(ServeOptions, DefaultsForRequestsComeFromFlags) {
  const Parsed p = parse(
      "--n-predict 64 --seed 42 --chat-template-kwargs {\"a\":1} --template-dates --verbose "
      "--enable-force-include-usage "
      "--return-tokens-as-token-ids --prefill-assistant model.gguf");
  ASSERT_EQ(p.error, "");
  const RequestDefaults& d = p.options.server.api.defaults;
  EXPECT_EQ(d.max_tokens, 64);
  EXPECT_EQ(d.seed, 42u);
  EXPECT_EQ(*d.template_kwargs.find("a")->integer(), 1);
  EXPECT_TRUE(d.prefill && d.template_dates && d.verbose && d.include_usage && d.tokens_as_ids);
  const RequestDefaults none = parse("model.gguf").options.server.api.defaults;
  EXPECT_FALSE(none.seed || none.template_dates || none.verbose || none.include_usage || none.tokens_as_ids);
  EXPECT_EQ(none.max_tokens, -1);
  EXPECT_EQ(parse("--seed -1 model.gguf").error,
            "--seed: invalid value '-1'; expected a whole number from 0 to 9223372036854775807");
  EXPECT_EQ(parse("--chat-template-kwargs [1] model.gguf").error,
            "--chat-template-kwargs: invalid value \"[1]\"; expected a JSON object");
}

TEST(ServeOptions, NamesOfTheModelAreTexts) {
  const Parsed p =
      parse("--alias gpt-4o --alias team/best --tag small --tag chat --list-once --strict-model model.gguf");
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.options.model.model, "model.gguf");
  EXPECT_EQ(p.options.server.aliases, (std::vector<std::string>{"gpt-4o", "team/best"}));
  EXPECT_TRUE(p.options.server.strict_model && p.options.server.list_once);
  EXPECT_EQ(p.options.server.tags, (std::vector<std::string>{"small", "chat"}));
  const std::string sentence = "--alias: expected a name of 1 to 512 bytes without control characters";
  for (const std::string& wrong : {std::string("a\x01"), std::string("\xff"), std::string(513, 'a')})
    EXPECT_EQ(parse("--alias " + wrong).error, sentence);
}

TEST(ServeOptions, WrongValueNamesTheExpectedOnes) {
  EXPECT_EQ(parse("--port 65536").error, "--port: invalid value '65536'; expected a whole number from 0 to 65535");
  EXPECT_EQ(parse("--max-n 2x").error, "--max-n: invalid value '2x'; expected a whole number from 1 to 4096");
  EXPECT_EQ(parse("--max-body-bytes 12").error,
            "--max-body-bytes: invalid value '12'; expected a number of bytes from 1K to 1G, as 4096, 16K, 8M or 2G");
  EXPECT_EQ(parse("--max-itl 50min").error,
            "--max-itl: invalid value '50min'; expected a time from 0.0001 to 86400 seconds, as 50ms or 0.05");
  for (const char* wrong : {"nan", "inf", "-1", "1e99", "5s", "0x5"}) {
    EXPECT_EQ(
        parse(std::string("--idle-timeout ") + wrong).error,
        std::string("--idle-timeout: invalid value '") + wrong + "'; expected a number of seconds from 0.01 to 86400");
  }
  EXPECT_NE(parse("--max-tokns 5").error, "");
}

TEST(ServeOptions, BytesAreReadAsTheyAreWritten) {
  constexpr int64_t kMax = int64_t{1} << 60;
  for (const char* text : {"0", "1000", "1K", "16K", "1M", "1025M", "3G", "2T"}) {
    const Result<int64_t> n = read_bytes(text, 0, kMax);
    ASSERT_TRUE(n.ok()) << text;
    EXPECT_EQ(bytes_text(*n), text);
  }
  for (const char* text : {"2k", "2kB", "2KiB", "2048b", "2048"}) EXPECT_EQ(*read_bytes(text, 0, kMax), 2048) << text;
  for (const char* text : {"", "K", "2Q", "2Kx", "0.5", "1 K", "99999999999999999999G", "+1"})
    EXPECT_FALSE(read_bytes(text, 0, kMax).ok()) << text;
}

// A bound that an operator meets is found in the page for operators, and with its default.
TEST(ServeOptions, EveryFlagOfALimitStandsInThePageForOperators) {
  std::ostringstream pages;
  for (const char* name : {"serving.md", "limits.md", "metrics.md"})
    pages << std::ifstream(source_dir() + "/docs/users/" + name).rdbuf();
  const std::string page = pages.str();
  ServeOptions options;
  CLI::App app;
  add_serve_options(&app, options);
  int n_limits = 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == "Options" || option->get_group() == "OPTIONS") continue;
    if (option->get_group().empty()) continue;  // refused by name, and in no help
    ++n_limits;
    const std::string flag = "`--" + option->get_lnames().front();
    EXPECT_TRUE(page.find(flag + "`") != std::string::npos || page.find(flag + " ") != std::string::npos)
        << "docs/users/serving.md, limits.md and metrics.md do not name " << flag;
  }
  EXPECT_GT(n_limits, 30);
}

// Flags with an empty group are in no help.
TEST(ServeOptions, HelpAllHasALineForEveryFlagAndHelpThoseThatPeopleNeed) {
  ServeOptions options;
  CLI::App app("", "ibid");
  set_up_help(app);
  CLI::App* serve = app.add_subcommand("serve", "");
  add_serve_options(serve, options);
  const auto flags_of = [](const std::string& text) {
    std::multiset<std::string> out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), kHelpWidth) << line;
      if (!line.starts_with("  -")) continue;
      std::string names = line.substr(2, line.find(' ', 2) - 2);
      for (size_t at = 0; at < names.size(); at = names.find(',', at) == std::string::npos ? names.size() : at + 1) {
        at = names.find("--", at);
        if (at == std::string::npos) break;
        out.insert(names.substr(at + 2, names.find(',', at) - at - 2));
      }
    }
    return out;
  };
  const std::multiset<std::string> all = flags_of(serve->help("ibid", CLI::AppFormatMode::All));
  for (const CLI::Option* option : serve->get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) EXPECT_EQ(all.count(name), 1u) << name;
  }
  const std::multiset<std::string> common = flags_of(serve->help("ibid", CLI::AppFormatMode::Normal));
  for (const std::string_view name : common_flags("serve")) EXPECT_EQ(common.count(std::string(name)), 1u) << name;
  EXPECT_LE(common_flags("serve").size(), 32u);
  EXPECT_GT(all.size(), 90u);
}

}  // namespace
}  // namespace ibid::cli
