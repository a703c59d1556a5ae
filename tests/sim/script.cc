#include "sim/script.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <sstream>
#include <string_view>

namespace ibid::sim {
namespace {

struct WorldField {
  const char* name;
  int64_t World::*value;
};
constexpr WorldField kWorldFields[] = {
    {"seed", &World::seed},
    {"steps", &World::n_steps},
    {"block_len", &World::block_len},
    {"n_blocks", &World::n_blocks},
    {"context", &World::context_len},
    {"step_tokens", &World::step_tokens},
    {"max_sequences", &World::max_sequences},
    {"max_rows", &World::max_rows},
    {"max_waiting", &World::max_waiting},
    {"window", &World::window},
    {"hash_bits", &World::hash_bits},
    {"prefix_cache", &World::prefix_cache},
    {"policy", &World::policy},
    {"max_drafts", &World::max_drafts},
    {"drafts", &World::drafts},
    {"segment", &World::segment},
    {"max_itl", &World::max_itl},
    {"host_blocks", &World::host_blocks},
    {"disk_blocks", &World::disk_blocks},
    {"disk_faults", &World::disk_faults},
    {"disk_idle", &World::disk_idle},
};
constexpr EventField kEventFields[] = {
    {"id", &Event::id},          {"path", &Event::path},         {"prompt", &Event::prompt_len},
    {"twist", &Event::twist},    {"after", &Event::after},       {"n", &Event::n},
    {"max", &Event::max_tokens}, {"min", &Event::min_tokens},    {"priority", &Event::priority},
    {"tenant", &Event::tenant},  {"salt", &Event::salt},         {"score", &Event::score},
    {"stops", &Event::stops},    {"sampling", &Event::sampling}, {"keep_eos", &Event::keep_eos},
};
constexpr std::string_view kKinds[] = {"submit", "cancel", "hang_up", "preempt", "stall", "restart"};

template <typename Fields, typename Thing>
void write_fields(const Fields& fields, const Thing& thing, std::string& out) {
  for (const auto& field : fields) {
    if (thing.*field.value != Thing().*field.value)
      out += std::string(" ") + field.name + '=' + std::to_string(thing.*field.value);
  }
}

template <typename Fields, typename Thing>
Status read_fields(const Fields& fields, std::istringstream& words, Thing& thing) {
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size() - 1);
    const auto field = std::ranges::find(fields, std::string_view(word).substr(0, equals),
                                         [](const auto& f) { return std::string_view(f.name); });
    const char* const end = word.data() + word.size();
    if (field == std::end(fields) || std::from_chars(word.data() + equals + 1, end, thing.*field->value).ptr != end)
      return invalid("\"" + word + "\" is no field and its number");
  }
  return {};
}

struct Dice {
  std::mt19937_64 random;
  int64_t up_to(int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return up_to(n) == 0; }
};

World random_world(Dice& dice, int64_t n_steps) {
  World w;
  w.seed = dice.up_to(1 << 30);
  w.n_steps = n_steps;
  w.block_len = 8 << dice.up_to(3);
  w.context_len = 32 + dice.up_to(80);
  const int64_t n_context_blocks = (w.context_len + w.block_len - 1) / w.block_len;
  w.n_blocks = n_context_blocks + dice.up_to((dice.one_in(2) ? 1 : 3) * n_context_blocks);
  w.max_sequences = 1 + dice.up_to(6);
  w.step_tokens = w.max_sequences + dice.up_to(40);
  w.max_rows = w.max_sequences + dice.up_to(8);
  w.max_waiting = dice.one_in(4) ? dice.up_to(6) : 64;
  w.window = dice.one_in(4) ? 2 + dice.up_to(30) : 0;
  w.hash_bits = dice.one_in(3) ? 6 : 128;
  w.prefix_cache = !dice.one_in(6);
  w.policy = dice.up_to(3);
  w.max_drafts = dice.one_in(2) ? 1 + dice.up_to(6) : 0;
  w.drafts = dice.one_in(4);
  w.segment = 3 + dice.up_to(20);
  w.max_itl = dice.one_in(2) ? 2 + dice.up_to(20) : 0;
  if (dice.one_in(3)) w.host_blocks = 1 + dice.up_to(2 * w.n_blocks);
  if (dice.one_in(3)) {
    w.disk_blocks = 1 + dice.up_to(4 * w.n_blocks);
    if (dice.one_in(2)) w.disk_faults = 3 + dice.up_to(30);
    w.disk_idle = dice.up_to(8);
  }
  return w;
}

Event random_submit(Dice& dice, const World& w, int64_t id) {
  Event e;
  e.id = id;
  e.path = dice.one_in(3) ? dice.up_to(4) : dice.up_to(256);
  e.prompt_len = 1 + dice.up_to(dice.one_in(3) ? w.context_len : w.context_len / 2);
  if (dice.one_in(4)) e.twist = dice.up_to(e.prompt_len);
  if (dice.one_in(5) && id > 1) e.after = std::max<int64_t>(1, id - 1 - dice.up_to(12));
  e.n = dice.one_in(5) ? 2 + dice.up_to(3) : 1;
  e.max_tokens = dice.one_in(4) ? -1 : dice.up_to(24);
  if (e.max_tokens > 3 && dice.one_in(3)) e.min_tokens = 1 + dice.up_to(3);
  if (dice.one_in(3)) e.priority = dice.up_to(3);
  if (dice.one_in(3)) e.tenant = dice.up_to(3);
  if (dice.one_in(8)) e.salt = 1;
  if (dice.one_in(8)) e.score = dice.up_to(3);
  if (dice.one_in(4)) e.stops = 1 + dice.up_to(7);
  if (!dice.one_in(4)) e.sampling = 2 + dice.up_to(1 << 20) * 2 + dice.one_in(4);
  e.keep_eos = !dice.one_in(5);
  return e;
}

}  // namespace

std::span<const EventField> event_fields() { return kEventFields; }

Script random_script(uint64_t seed, int64_t n_steps) {
  Dice dice{std::mt19937_64(seed)};
  Script out{.world = random_world(dice, n_steps), .events = {}};
  int64_t next = 1;
  // Quiet and busy times by turns: pressure builds up and goes.
  int64_t quiet = 4;
  for (int64_t step = 0; step < n_steps; ++step) {
    if (dice.one_in(100)) quiet = 1 + dice.up_to(9);
    const auto add = [&](Event e) {
      e.step = step;
      out.events.push_back(e);
    };
    const auto recent = [&] { return std::max<int64_t>(1, next - 1 - dice.up_to(dice.one_in(2) ? 2 : 10)); };
    if (dice.one_in(quiet)) add(random_submit(dice, out.world, next)), ++next;
    if (dice.one_in(25)) add({.kind = EventKind::kCancel, .id = recent()});
    if (dice.one_in(300)) add({.kind = EventKind::kHangUp, .tenant = dice.up_to(3)});
    if (dice.one_in(12)) add({.kind = EventKind::kPreempt, .id = recent(), .n = dice.one_in(3) ? dice.up_to(4) : 0});
    if (out.world.disk_blocks > 0 && dice.one_in(400)) add({.kind = EventKind::kRestart});
    if (dice.one_in(100)) add({.kind = EventKind::kStall, .max_tokens = dice.up_to(5000)});
  }
  return out;
}

std::string text_of(const Script& script) {
  std::string out = "world";
  write_fields(kWorldFields, script.world, out);
  for (const Event& e : script.events) {
    out += '\n' + std::to_string(e.step) + ' ' + std::string(kKinds[static_cast<size_t>(e.kind)]);
    write_fields(kEventFields, e, out);
  }
  return out + '\n';
}

Result<Script> read_script(const std::string& text) {
  Script out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, verb;
    if (!(words >> first)) continue;
    if (first == "world") {
      TRY(read_fields(kWorldFields, words, out.world));
      continue;
    }
    Event e;
    words >> verb;
    const auto kind = std::ranges::find(kKinds, verb);
    if (kind == std::end(kKinds)) return invalid("\"" + line + "\" is no event");
    e.kind = static_cast<EventKind>(kind - std::begin(kKinds));
    e.step = std::stoll("0" + first);
    TRY(read_fields(kEventFields, words, e));
    out.events.push_back(e);
  }
  return out;
}

}  // namespace ibid::sim
