// The flags and commands of speculative decoding (docs/users/speculation.md).
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/options/command_line.h"
#include "spec/experimental/lookahead_proposer.h"
#include "spec/experimental/own_answers.h"
#include "spec/experimental/text_store.h"

namespace ibid::cli {
namespace {

struct SpecName {
  std::string_view name, what;
};
constexpr SpecName kSpecNames[] = {
    {"auto", "ngram, and ibid's own EAGLE head for the default model"},
    {"off", "no speculative decoding"},
    {"ngram", "lookup of the longest suffix that occurred earlier in the sequence; all below use it too"},
    {"eagle", "ibid's own EAGLE head (default model only)"},
    {"eagle:FILE", "an EAGLE-1, -2 or -3 head"},
    {"heads:FILE", "Medusa or Hydra heads"},
    {"mtp", "the multi-token prediction layer of the model's file"},
    {"draft:MODEL", "a smaller model with the same vocabulary"},
    {"window", "the model itself over the first 64 and last 512 tokens"},
    {"window:SINK,WINDOW", "the same with other lengths"},
    {"NAME+window", "the draft tokens of NAME, filtered by such a window; also NAME+window:SINK,WINDOW"},
    {"store:FILE", "texts indexed by ibid spec build-store"},
    {"skip", "the default model without some of its layers"},
    {"skip:LAYERS", "the model without these layers, as 4-12,16 (ibid spec find-layers)"},
    {"lookahead", "look-ahead decoding (Jacobi iteration)"},
    {"lookahead:TOKENS", "the same with a window of so many tokens"},
};

// What `--spec help` prints: a name a line.
std::string spec_table() {
  std::string out = "--spec takes one of these names. No answer depends on it, only speed.\n\n";
  for (const SpecName& s : kSpecNames) out += fmt::format("  {:20}{}\n", s.name, s.what);
  return out + "\n'ibid plan MODEL --spec NAME' measures whether it pays on this machine.";
}

std::string spec_names() {
  std::string out;
  for (const SpecName& s : kSpecNames) out += (out.empty() ? "" : ", ") + std::string(s.name);
  return out;
}

// "64,512": the first and the last tokens of a sequence.
Result<WindowArgs> read_window(std::string_view text) {
  constexpr int64_t kMost = 1 << 24;
  const size_t comma = text.find(',');
  const auto sink = read_whole(text.substr(0, comma), 0, kMost);
  const auto window = comma == std::string_view::npos ? sink : read_whole(text.substr(comma + 1), 1, kMost);
  if (comma == std::string_view::npos || !sink || !window) {
    return invalid("invalid value '" + std::string(text) + "'; expected SINK,WINDOW, as 64,512");
  }
  return WindowArgs{.n_sink = static_cast<int32_t>(*sink), .n_window = static_cast<int32_t>(*window)};
}

}  // namespace

void add_spec_options(CLI::App* command, SpecArgs& o) {
  add_read(
      command, "--spec", o, "NAME", o.by_lookup ? "auto" : "off",
      "proposer of draft tokens: auto, off, ngram, ...; --spec help lists all",
      [o](std::string_view name) -> Result<SpecArgs> {
        constexpr std::string_view kDraft = "draft:", kHeads = "heads:", kEagle = "eagle:", kStore = "store:",
                                   kSkip = "skip:", kWindow = "window:", kLookAhead = "lookahead:", kBeside = "+window";
        if (name == "help") throw CLI::CallForVersion(spec_table(), 0);  // prints the text and exits
        SpecArgs read = o;
        read.name = name;
        // A file's name may hold the word too.
        const size_t plus = name.rfind(kBeside);
        const std::string_view following = plus == std::string_view::npos ? "" : name.substr(plus + kBeside.size());
        if (plus != std::string_view::npos && plus > 0 && (following.empty() || following.front() == ':')) {
          read.window = WindowArgs();
          if (!following.empty()) {
            ASSIGN_OR_RETURN(read.window, read_window(following.substr(1)));
          }
          name = name.substr(0, plus);
        }
        read.by_lookup = name != "off";
        read.finds_own = name == "auto";
        if (read.window && (!read.by_lookup || name.starts_with("window")))
          return invalid("+window needs another proposer before it; '" + std::string(name) + "' is not one");
        if (name == "off" || name == "auto" || name == "ngram") return read;
        const auto takes = [name](std::string_view kind) {
          return name.starts_with(kind) && name.size() > kind.size();
        };
        if (name == "eagle") {
          read.eagle = kOwnEagle;
        } else if (name == "mtp") {
          read.mtp = true;
        } else if (name == "skip") {
          read.skip = kOwnLayers;
        } else if (name == "lookahead") {
          read.look_ahead = LookAheadOptions().n_window;
        } else if (takes(kLookAhead)) {
          const auto n = read_whole(name.substr(kLookAhead.size()), 1, LookAheadProposer::kMostWindow);
          if (!n) {
            return invalid("invalid value '" + std::string(name) + "'; expected lookahead:TOKENS with 1 to " +
                           std::to_string(LookAheadProposer::kMostWindow) + " tokens");
          }
          read.look_ahead = static_cast<int32_t>(*n);
        } else if (name == "window") {
          read.window = WindowArgs();
        } else if (takes(kWindow)) {
          ASSIGN_OR_RETURN(read.window, read_window(name.substr(kWindow.size())));
        } else if (takes(kHeads)) {
          read.heads = name.substr(kHeads.size());
        } else if (takes(kEagle)) {
          read.eagle = name.substr(kEagle.size());
        } else if (takes(kStore)) {
          read.store = name.substr(kStore.size());
        } else if (takes(kSkip)) {
          ASSIGN_OR_RETURN(const std::vector<int32_t> layers, read_layers(name.substr(kSkip.size())));
          read.skip = layers_text(layers);
        } else if (takes(kDraft)) {
          read.draft_model = name.substr(kDraft.size());
        } else {
          return invalid("unknown value '" + std::string(name) + "'; expected " + spec_names());
        }
        return read;
      });
  add_whole(command, "--spec-k", o.k, 1, 16, "maximum draft tokens per sequence and step");
  add_read(command, "--spec-draft-window", o.draft_window, "SINK,WINDOW", "all",
           "first and last tokens that a draft model reads, as 64,512", read_window);
  add_read(command, "--spec-own-answers", o.own_answers_bytes, "BYTES", "0",
           "memory for earlier answers to propose from, as 64M; 0: none", [](std::string_view text) -> Result<int64_t> {
             if (text == "0") return 0;
             return read_bytes(text, OwnAnswers::kLeastBytes, int64_t{1} << 40);
           });
}

void add_spec_commands(CLI::App& app, BuildStoreOptions& s, FindLayersOptions& l, int& exit_code) {
  CLI::App* spec = app.add_subcommand("spec", "make the files of proposers")->require_subcommand(1);
  CLI::App* c = spec->add_subcommand("build-store", "index texts for --spec store:FILE");
  c->add_option("FILES", s.files, "texts, or .jsonl files of objects with text, prompt and answer, or messages")
      ->required();
  c->add_option("-m,--model", s.model, "model whose vocabulary is used; default: the default model")
      ->type_name("MODEL");
  c->add_option("-o,--out", s.out, "file to write")->type_name("STORE")->required();
  add_whole(c, "--max-tokens", s.max_tokens, 1, TextStore::kMaxTokens, "maximum tokens, of eight bytes each");
  c->footer("Example:\n  ibid spec build-store manual.txt answers.jsonl -o texts.store");
  on_parse(c, exit_code, s, build_store);

  c = spec->add_subcommand("find-layers", "find the layers that --spec skip:LAYERS should skip");
  add_model_options(c, l.model);
  c->add_option("--text", l.file, "text that the model wrote (-: standard input)")->type_name("FILE")->required();
  add_whole(c, "-n,--tokens", l.n_tokens, 16, 1 << 20, "use only the first N tokens");
  add_whole(c, "--most", l.most, 0, 4096, "maximum layers to skip; 0: as many as may pay");
  add_whole(c, "--spec-k", l.max_drafts, 1, 16, "maximum draft tokens per step");
  add_read(c, "--temp", l.temperature, "T", "0", "temperature of both, with the same noise",
           [](std::string_view text) { return read_seconds(text, 0, 100); });
  add_read(c, "--layer-cost", l.layer_cost, "PART", "measured", "cost of a layer, relative to a step of one row",
           [](std::string_view text) { return read_seconds(text, 0, 1); });
  add_read(c, "--row-cost", l.row_cost, "PART", "measured", "cost of an extra row, relative to a step of one row",
           [](std::string_view text) { return read_seconds(text, 0, 1); });
  c->footer("Example:\n  ibid spec find-layers model.gguf --text answers.txt");
  on_parse(c, exit_code, l, find_layers);
}

}  // namespace ibid::cli
