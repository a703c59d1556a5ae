// The flags and commands of guessing (docs/users/speculation.md).
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "spec/lookahead_proposer.h"
#include "spec/own_answers.h"
#include "spec/text_store.h"

namespace ibid::cli {
namespace {

// "64,512": tokens of a text's begin and of its end.
Result<WindowArgs> read_window(std::string_view text) {
  constexpr int64_t kMost = 1 << 24;
  const size_t comma = text.find(',');
  const auto sink = read_whole(text.substr(0, comma), 0, kMost);
  const auto window = comma == std::string_view::npos ? sink : read_whole(text.substr(comma + 1), 1, kMost);
  if (comma == std::string_view::npos || !sink || !window) {
    return invalid("'" + std::string(text) +
                   "' is no view of a text; 64,512 would be one, of its first 64 tokens and its last 512.");
  }
  return WindowArgs{.n_sink = static_cast<int32_t>(*sink), .n_window = static_cast<int32_t>(*window)};
}

}  // namespace

std::string SpecArgs::drafter() const {
  const std::pair<bool, const char*> kinds[] = {
      {!draft_model.empty(), "draft"}, {!heads.empty(), "heads"}, {!eagle.empty(), "eagle"},    {mtp, "mtp"},
      {!store.empty(), "store"},       {!skip.empty(), "skip"},   {look_ahead > 0, "lookahead"}};
  std::string out;
  for (const auto& [is_there, kind] : kinds) out += is_there ? kind : "";  // of a command line there is one at most
  if (window) out += out.empty() ? "window" : "+window";
  return out;
}

void add_spec_options(CLI::App* command, SpecArgs& o) {
  add_read(
      command, "--spec", o, "NAME", o.by_lookup ? "auto" : "off",
      "tokens that are guessed and verified together, which changes no token: off, ngram (by the text itself), auto "
      "(that, and ibid's own head for the default model), and beside ngram heads:FILE, draft heads, eagle or "
      "eagle:FILE, a head with attention, ibid's for the default "
      "model or another, mtp, the layer for it that the model brings along, store:FILE, texts that `ibid spec "
      "build-store` made a file of, lookahead or lookahead:TOKENS, what the model says behind wrong guesses, "
      "draft:MODEL, a small model of the same vocabulary, skip or skip:LAYERS, the model "
      "itself without these layers, or window or window:SINK,WINDOW, the model itself over so many tokens of a text's "
      "begin and end; NAME+window and NAME+window:SINK,WINDOW have the latter look over what NAME guesses",
      [o](std::string_view name) -> Result<SpecArgs> {
        constexpr std::string_view kDraft = "draft:", kHeads = "heads:", kEagle = "eagle:", kStore = "store:",
                                   kSkip = "skip:", kWindow = "window:", kLookAhead = "lookahead:", kBeside = "+window";
        SpecArgs read = o;
        read.name = name;
        // A file's name may hold the word too.
        const size_t plus = name.rfind(kBeside);
        const std::string_view behind = plus == std::string_view::npos ? "" : name.substr(plus + kBeside.size());
        if (plus != std::string_view::npos && plus > 0 && (behind.empty() || behind.front() == ':')) {
          read.window = WindowArgs();
          if (!behind.empty()) {
            ASSIGN_OR_RETURN(read.window, read_window(behind.substr(1)));
          }
          name = name.substr(0, plus);
        }
        read.by_lookup = name != "off";
        read.finds_own = name == "auto";
        if (read.window && (!read.by_lookup || name.starts_with("window")))
          return invalid("A view of a text looks over what others guess, and '" + std::string(name) + "' is none.");
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
            return invalid("'" + std::string(name) +
                           "' is no window of look-ahead; lookahead:6 would be one, of 1 to " +
                           std::to_string(LookAheadProposer::kMostWindow) + " tokens.");
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
          return invalid("'" + std::string(name) +
                         "' guesses nothing here; auto, off, ngram, heads:FILE, eagle, eagle:FILE, mtp, "
                         "store:FILE, lookahead, lookahead:TOKENS, draft:MODEL, skip, skip:LAYERS, window or "
                         "window:SINK,WINDOW would do.");
        }
        return read;
      });
  add_whole(command, "--spec-k", o.k, 1, 16, "most guesses for a sequence and step; how many is chosen as they pay");
  add_read(
      command, "--spec-draft-window", o.draft_window, "SINK,WINDOW", "all",
      "what a draft model reads of a longer text: so many tokens of its begin, and so many to twice as many of its "
      "end, as 64,512",
      read_window);
  add_read(command, "--spec-own-answers", o.own_answers_bytes, "BYTES", "0",
           "memory for what each tenant was answered, as 64M, which is guessed from for its own next answers alone (0: "
           "nothing is kept)",
           [](std::string_view text) -> Result<int64_t> {
             if (text == "0") return 0;
             return read_bytes(text, OwnAnswers::kLeastBytes, int64_t{1} << 40);
           });
}

void add_spec_commands(CLI::App& app, BuildStoreOptions& s, FindLayersOptions& l, int& exit_code) {
  CLI::App* spec = app.add_subcommand("spec", "what guesses of tokens are made from")->require_subcommand(1);
  CLI::App* c = spec->add_subcommand("build-store", "make a file of texts that --spec store:FILE guesses from");
  c->add_option("FILES", s.files, "texts, or objects in lines (.jsonl) with text, prompt and answer, or messages")
      ->required();
  c->add_option("-m,--model", s.model, "whose vocabulary it is for; the default model's unless said")
      ->type_name("MODEL");
  c->add_option("-o,--out", s.out, "the file to write")->type_name("STORE")->required();
  add_whole(c, "--max-tokens", s.max_tokens, 1, TextStore::kMaxTokens,
            "most tokens that it takes; eight bytes each, in the file and while it is made");
  c->footer("Example:\n  ibid spec build-store manual.txt answers.jsonl -o texts.store");
  on_parse(c, exit_code, s, build_store);

  c = spec->add_subcommand("find-layers", "which layers a model can do without when it guesses for itself");
  add_model_options(c, l.model);
  c->add_option("--text", l.file, "a text as the model writes them ('-': standard input)")
      ->type_name("FILE")
      ->required();
  add_whole(c, "-n,--tokens", l.n_tokens, 16, 1 << 20, "of its tokens the first so many");
  add_whole(c, "--most", l.most, 0, 4096, "most layers that are left out (0: as many as may pay)");
  add_whole(c, "--spec-k", l.max_drafts, 1, 16, "most guesses of a step");
  add_read(c, "--temp", l.temperature, "T", "0", "temperature at which both draw, with the same noise",
           [](std::string_view text) { return read_seconds(text, 0, 100); });
  add_read(c, "--layer-cost", l.layer_cost, "PART", "measured", "what a layer takes, as a part of a step of one row",
           [](std::string_view text) { return read_seconds(text, 0, 1); });
  add_read(c, "--row-cost", l.row_cost, "PART", "measured", "what each further row takes, as a part of the same",
           [](std::string_view text) { return read_seconds(text, 0, 1); });
  c->footer("Example:\n  ibid spec find-layers model.gguf --text answers.txt");
  on_parse(c, exit_code, l, find_layers);
}

}  // namespace ibid::cli
