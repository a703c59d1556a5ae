// Chat templates and messages that try to hang the server or eat its memory. Each ends with its sentence (or, where
// `says` is empty, with a prompt) within 250 ms of CPU and 32 MiB.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <unordered_map>

#include "hostile/limits.h"
#include "text/jinja/chat_template.h"

namespace ibid {
namespace {

struct Case {
  std::string name;
  std::string source;
  std::string says;  // a part of the error; empty: it renders
  std::string messages = R"([{"role":"user","content":"hi"}])";
};

std::string repeat(const std::string& s, size_t n) {
  std::string out;
  out.reserve(s.size() * n);
  while (n-- > 0) out += s;
  return out;
}

// Runs `step` n times with a namespace `ns` around; ns.x begins as `start`.
std::string grow(const std::string& start, const std::string& step, int n, const std::string& then = "") {
  return "{% set ns = namespace(x=" + start + ") %}{% for i in range(" + std::to_string(n) +
         ") %}{% set ns.x = " + step + " %}{% endfor %}" + then;
}

// "a0,a1, ..."; with `value`, "a0=value, ...".
std::string names(int n, const std::string& value = "") {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i > 0 ? ",a" : "a") + std::to_string(i) + value;
  return out;
}

// `expression` 100,000 times, where s and t are equal strings of 3 MB.
Case often(const std::string& expression, const std::string& before = "") {
  return {expression,
          "{% set s = 'x' * 3000000 %}{% set t = 'x' * 3000000 %}" + before +
              "{% for i in range(100000) %}{% set y = " + expression + " %}{% endfor %}",
          "steps"};
}

std::vector<Case> unpaid() {
  return {
      {"path of many parts", "{{ range(100000)|map(attribute='x.' * 50000, default='')|list }}", "steps"},
      {"calls with many absent arguments",
       "{% macro f(" + names(3000) + ") %}{% endmacro %}{% for i in range(100000) %}{{ f() }}{% endfor %}", "steps"},
      {"call with very many absent arguments", "{% macro f(" + names(35000) + ") %}{% endmacro %}{{ f() }}", "steps"},
      {"many variables looked up",
       [] {
         std::string s;
         for (int i = 0; i < 12000; ++i) s += "{% set a" + std::to_string(i) + "=1 %}";
         return s + "{% for i in range(100000) %}{% set y = a11999 %}{% endfor %}";
       }(),
       "steps"},
      {"named arguments handed on to each item",
       "{% set d = dict(range(4000)|map('string')|batch(2)) %}{{ ([''] * 90000)|map('map', **d)|list|length }}",
       "steps"},
      {"fields of many named arguments",
       "{{ ('{z}' * 200000).format_map(dict(dict(range(30000)|map('string')|batch(2)), z='')) }}", "steps"},
      {"namespace of many attributes",
       "{% set ns = namespace(dict(range(50000)|map('string')|batch(2))) %}{% for i in range(100000) %}"
       "{% set y = ns.zz is defined %}{% endfor %}",
       "steps"},
      {"many parameters", "{% macro f(" + names(35000) + ") %}{% endmacro %}", ""},
      {"many named arguments", "{% if 0 %}{{ f(" + names(28000, "=1") + ") }}{% endif %}", ""},
      {"roles repeated", "{{ messages[0].role * 150000 }}", ""},
      {"start of a long string",
       "{% set s = 'x' * 3000000 %}{% for i in range(100000) %}{% set y = s.startswith('x') "
       "%}{% endfor %}",
       ""},
      often("j(**d)", "{% set d = {s: 1} %}{% set j = joiner() %}"),
      often("s|int"),
      often("s|float"),
      often("s is sameas t"),
      often("s.startswith(t)"),
      often("s.removeprefix(u)", "{% set u = s[1:] ~ 'y' %}"),
      often("'a'|replace('b', s)"),
      often("[1]|join(s)"),
      often("'a'|truncate(10**9, true, s)"),
      often("'{0:.0}'.format(s)"),
      often("ns[s]", "{% set ns = namespace({s: 1}) %}"),
  };
}

std::vector<Case> loops() {
  return {
      {"loop of 10^10", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps"},
      {"loop of 10^9 that prints", "{% for a in range(100000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}",
       "steps"},
      {"loop that prints much", "{% set s = 'x' * 10000 %}{% for a in range(100000) %}{{ s }}{% endfor %}", "bytes"},
      {"range of 10^18", "{{ range(10**18) }}", "100000"},
      {"range down", "{{ range(10**18, 0 - 10**18, -1) }}", "100000"},
      {"slice of a range whose step leaves 64 bits",
       "{{ range(-9223372036854775807 - 1, 9223372036854775807, 4611686018427387904)[2::4] }}", "64 bits"},
      {"range list times range", "{% for a in range(99999)|list * 100 %}{% endfor %}", "memory"},
      {"loop over characters", "{% for c in 'x' * 3000000 %}{% endfor %}", "steps"},
      {"characters as a list", "{{ ('x' * 3000000)|list|length }}", "memory"},
      {"recursive loop without end", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deeply"},
      {"macro without end", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeply"},
      {"two macros without end",
       "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", "deeply"},
      {"macro that branches", "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
       "steps"},
      {"caller without end", "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
       "deeply"},
      {"default without end", "{% macro f(a=f()) %}{% endmacro %}{{ f() }}", "deeply"},
      {"call blocks in a loop",
       "{% macro f() %}{{ caller() }}{% endmacro %}{% for i in range(100000) %}{% call f() %}x{% endcall %}{% endfor "
       "%}",
       ""},
      {"loop variables nested", repeat("{% for x in range(100) %}", 60) + repeat("{% endfor %}", 60), "steps"},
      {"filter in a loop", "{% for x in range(100000) if range(100000)|list|length < 0 %}{% endfor %}", "steps"},
      {"length of a filtered loop", "{% for x in range(100000) if x %}{{ loop.length }}{% endfor %}", ""},
  };
}

std::vector<Case> growth() {
  return {
      {"string doubled 60 times", grow("'x'", "ns.x + ns.x", 60), "memory"},
      {"string doubled by ~", grow("'x'", "ns.x ~ ns.x", 60), "memory"},
      {"string doubled by format", grow("'x'", "'%s%s' % (ns.x, ns.x)", 60), "memory"},
      {"string doubled by join", grow("'x'", "[ns.x, ns.x]|join", 60), "memory"},
      {"string doubled by replace", grow("'x'", "ns.x|replace('x', 'xx')", 60), "steps"},
      {"string doubled in a block", "{% set s = 'x' %}" + repeat("{% set s %}{{ s }}{{ s }}{% endset %}", 60),
       "memory"},
      {"string doubled by a macro",
       "{% macro f(n) %}{% if n %}{% set s = f(n - 1) %}{{ s ~ s }}{% else %}x{% endif %}{% endmacro %}{{ f(60) }}",
       "memory"},
      {"list doubled", grow("[1]", "ns.x + ns.x", 60), "memory"},
      {"string times 10^12", "{{ 'x' * 10**12 }}", "memory"},
      {"string times 2^63", "{{ 'xy' * 9223372036854775807 }}", "memory"},
      {"list times 10^12", "{{ [0] * 10**12 }}", "memory"},
      {"width of %", "{{ '%1000000000d' % 1 }}", "memory"},
      {"width of % from an argument", "{{ '%*d' % (1000000000, 1) }}", "memory"},
      {"precision of %", "{{ '%.1000000000f' % 1.5 }}", "asks too much"},
      {"width of format()", "{{ '{:1000000000}'.format(1) }}", "memory"},
      {"width of format() in digits", "{{ '{:99999999999999999999999999}'.format('a') }}", "memory"},
      {"precision of format()", "{{ '{:.1000000000f}'.format(1.5) }}", "asks too much"},
      {"format() nested", "{{ '{:{:{:{}}}}'.format(1, 2, 3, 4) }}", "nested"},
      {"center", "{{ 'x'.center(10**12) }}{{ 'x'|center(10**12) }}", "memory"},
      {"ljust", "{{ 'x'.ljust(10**15) }}", "memory"},
      {"zfill", "{{ 'x'.zfill(10**15) }}", "memory"},
      {"expandtabs", "{{ ('\\t' * 100000).expandtabs(1000000) }}", "memory"},
      {"expandtabs of one tab", "{{ '\\t'.expandtabs(2147483647) }}", "memory"},
      {"expandtabs beyond an int", "{{ '\\t'.expandtabs(2147483648) }}", "2147483647 columns"},
      {"expandtabs in a loop", "{% for i in range(100000) %}{% set x = '\\t'.expandtabs(8000000) %}{% endfor %}",
       "steps"},
      {"join of characters", "{{ ('x' * 100000)|join('y' * 100000) }}", "memory"},
      {"replace of nothing", "{{ ('a' * 1000000)|replace('', 'b' * 1000) }}", "memory"},
      {"indent by 10^12", "{{ 'a\\nb'|indent(10**12) }}", "memory"},
      {"indent of many lines", "{{ ('a\\n' * 100000)|indent(100000) }}", "memory"},
      {"tojson with indent 10^12", "{{ [1]|tojson(indent=10**12) }}", "memory"},
      {"tojson with a long separator", "{{ range(1000)|list|tojson(separators=('x' * 1000000, ':')) }}", "memory"},
      {"tojson of itself", grow("'\"'", "ns.x|tojson", 60), "memory"},
      {"repr of itself", grow("'\\\\'", "[ns.x]|string", 60), "memory"},
      {"escape of itself", grow("'<'", "ns.x|forceescape", 3000), "e"},
      {"from_json of many lists", "{{ ('[' ~ '[],' * 1000000 ~ '0]')|from_json|length }}", "memory"},
      {"from_json of many numbers", "{{ ('[' ~ '1,' * 1000000 ~ '0]')|from_json|length }}", "memory"},
      {"from_json of many keys", "{{ ('[' ~ '{\"a\":0},' * 300000 ~ '0]')|from_json|length }}", "memory"},
      {"from_json in a loop",
       "{% set s = '[' ~ '1,' * 10000 ~ '0]' %}{% for i in range(100000) %}{% set x = s|from_json %}{% endfor %}",
       "steps"},
      {"from_json of a long number", "{{ ('1' * 1000000)|from_json|string|length }}", ""},
      {"from_json nested", "{{ ('[' * 5000)|from_json }}", "no JSON"},
      {"from_json nested in lists", grow("[]", "[ns.x, ('[' * 99 ~ ']' * 99)|from_json]", 300), "deeply"},
      {"batch filled", "{{ [1]|batch(10**12, 0)|list }}", "memory"},
      {"slice into 10^12", "{{ [1]|slice(10**12)|list|length }}", "e"},
      {"sum of lists", "{{ ([[1] * 100] * 10000)|sum(start=[])|length }}", "steps"},
      {"nested captures", repeat("{% set a %}{{ 'x' * 500000 }}", 50) + repeat("{% endset %}", 50), "steps"},
      {"many variables", grow("[]", "ns.x + [i ~ 'x' * 1000]", 100000), "steps"},
      {"sort by many paths", "{{ [1]|sort(attribute=',' * 3000000) }}", "memory"},
      {"path of many numbers", "{{ [1]|map(attribute='1.' * 1500000)|list }}", "memory"},
      {"tojson of control characters", "{{ ('\\x01' * 5000000)|tojson }}", "memory"},
      {"map of map", "{{ 'a'|map(*(['map'] * 1500)) }}", "deeply"},
      {"cyclers of many items",
       "{% set x = [0] * 50000 %}{% set ns = namespace(x=[]) %}{% for i in range(100) %}{% set ns.x = ns.x + "
       "[cycler(*x)] %}{% endfor %}",
       "memory"},
      {"namespaces of many attributes",
       "{% set d = dict(range(20000)|map('string')|batch(2)) %}{% for i in range(100) %}{% set x = namespace(d) %}"
       "{% endfor %}",
       "e"},
      {"split into many", "{{ ('a,' * 2000000).split(',')|length }}", "memory"},
      {"lines", "{{ ('\\n' * 2000000).splitlines()|length }}", "memory"},
      {"arguments from a range",
       "{% macro f() %}{{ varargs|length }}{% endmacro %}{% for i in range(1000) %}{{ f(*range(99999)) }}{% endfor %}",
       "steps"},
      {"power", "{{ 10 ** 100 }}", "64 bits"},
      {"power of power", "{{ 9 ** 9 ** 9 ** 9 }}", "64 bits"},
      {"big literal", "{{ " + repeat("9", 10000) + " }}", "64 bits"},
      {"strftime width", "{{ strftime_now('%1000000d')|length }}", ""},
      {"strftime long", "{{ strftime_now('%c' * 10000) }}", "too long"},
  };
}

std::vector<Case> depth() {
  std::string dag = grow("[1]", "[ns.x, ns.x]", 60);
  return {
      {"parentheses", "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}", "deeply"},
      {"brackets", "{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}", "deeply"},
      {"braces", "{{ " + repeat("{1:", 50000) + "1" + repeat("}", 50000) + " }}", "deeply"},
      {"calls in calls", "{{ " + repeat("f(", 50000) + repeat(")", 50000) + " }}", "deeply"},
      {"subscripts in subscripts", "{{ " + repeat("a[", 50000) + "0" + repeat("]", 50000) + " }}", "deeply"},
      {"blocks", repeat("{% if 1 %}", 20000), "deeply"},
      {"elif chain", "{% if 0 %}" + repeat("{% elif 0 %}", 10000) + "{% endif %}", ""},
      {"nots", "{{ " + repeat("not ", 50000) + "1 }}", "deeply"},
      {"minuses", "{{ " + repeat("-", 100000) + "1 }}", "deeply"},
      {"pluses", "{{ 1" + repeat(" + 1", 50000) + " }}", "deeply"},
      {"tildes", "{{ 1" + repeat(" ~ 1", 50000) + " }}", ""},
      {"ands", "{{ 1" + repeat(" and 1", 30000) + " }}", "deeply"},
      {"comparisons", "{{ 1" + repeat(" == 1", 30000) + " }}", ""},
      {"attributes", "{{ a" + repeat(".a", 100000) + " }}", "deeply"},
      {"filters", "{{ a" + repeat("|e", 100000) + " }}", "deeply"},
      {"tests", "{{ a" + repeat(" is defined", 20000) + " }}", "cannot be chained"},
      {"inline ifs", "{{ 1" + repeat(" if 1 else 1", 20000) + " }}", "deeply"},
      {"list in list, by a loop", grow("[]", "[ns.x]", 10000), "deeply"},
      {"dict in dict, by a loop", grow("{}", "{'a': ns.x}", 10000), "deeply"},
      {"iterator in iterator", grow("[]", "[ns.x]|map('default')", 10000), "deeply"},
      {"method of a list of methods", grow("[]", "[ns.x].copy", 10000), "deeply"},
      {"view of a dict of views", grow("{}", "{'a': ns.x}.items()", 10000), "deeply"},
      {"namespace in namespace", grow("0", "namespace(x=ns.x)", 100000), ""},
      {"namespace in namespace, printed", grow("0", "namespace(x=ns.x)", 5000, "{{ ns.x }}"), "deeply"},
      {"namespace that holds itself", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "deeply"},
      {"namespaces in a ring", "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}x", ""},
      {"loops that hold one another",
       "{% set ns = namespace(x=0) %}{% for i in range(2000) %}{% for y in [ns.x] %}{% set ns.x = " + repeat("[", 150) +
           "loop" + repeat("]", 150) + " %}{% endfor %}{% endfor %}x",
       ""},
      {"macro held by its own scope",
       "{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}{% endmacro %}{% set ns.f = f %}{% endfor %}x", ""},
      {"shared lists compared",
       dag + grow("[1]", "[ns.x, ns.x]", 60, "") + "{% set a = ns.x %}" + dag + "{{ a == ns.x }}", "steps"},
      {"shared lists printed", dag + "{{ ns.x }}", "e"},
      {"shared lists as JSON", dag + "{{ ns.x|tojson }}", "e"},
      {"shared tuples as a key", grow("(1,)", "(ns.x, ns.x)", 60, "{{ {ns.x: 1} }}"), "steps"},
      {"shared tuples made unique", grow("(1,)", "(ns.x, ns.x)", 60, "{{ [ns.x, ns.x]|unique|list|length }}"), "steps"},
      {"shared lists sorted", dag + "{% set a = ns.x %}" + dag + "{{ [ns.x, a]|sort|length }}", "steps"},
      {"shared lists in a list", dag + "{% set a = ns.x %}" + dag + "{{ a in [ns.x] }}", "steps"},
      {"shared lists that change",
       dag + "{% set a = ns.x %}" + dag + "{% for x in [a, ns.x] %}{{ loop.changed(x) }}{% endfor %}", "steps"},
  };
}

std::vector<Case> searches() {
  return {
      {"needle like the hay", "{{ ('a' * 300000 ~ 'b') in ('a' * 600000) }}", ""},
      {"needle like the hay, from the right", "{{ ('a' * 600000).rfind('b' ~ 'a' * 300000) }}", ""},
      {"count", "{{ ('ab' * 300000).count('ab') }}", ""},
      {"strip by many characters", "{{ ('a' * 300000).strip('b' * 300000 ~ 'a') }}", "steps"},
      {"sort of equal strings", "{{ ((['a' * 1000] * 20000)|sort)|length }}", "e"},
      {"sort of many", "{{ range(100000)|sort(reverse=true)|first }}", "steps"},
      {"groups of many", "{{ range(99999)|map('string')|groupby(0)|length }}", "e"},
      {"sigmas", "{{ ('Σ' * 100000)|lower|length }}", ""},
      {"sigma before marks", "{{ ('aΣ' ~ '.' * 300000 ~ 'Σ')|lower|length }}", ""},
      {"dict of many", "{{ dict(range(50000)|map('string')|batch(2))|length }}", ""},
      {"slices of a long string",
       "{% set s = 'é' * 500000 %}{% for i in range(100000) %}{% set x = s[i] %}{% endfor %}", "steps"},
      {"NaNs made unique", "{{ (['nan'|float] * 100000)|unique|list|length }}", ""},
      {"split from the right", "{{ ('ab' * 300000).rsplit('b', 5)|length }}", ""},
      {"title", "{{ ('ab cd ' * 300000)|title|length }}", ""},
  };
}

std::vector<Case> sources() {
  return {
      {"too long", repeat("x", (256 << 10) + 1), "bytes"},
      {"longest", repeat("x", 256 << 10), ""},
      {"not UTF-8", "a\xFF", "UTF-8"},
      {"half a code point", "{{ 'a' }}\xE2\x82", "UTF-8"},
      {"surrogate", "\xED\xA0\x80", "UTF-8"},
      {"zero bytes", std::string("a\0{{ 1 }}\0", 10), ""},
      {"zero byte in a tag", std::string("{{ \0 }}", 7), "no meaning"},
      {"open string", "{{ '" + repeat("x", 200000), "not closed"},
      {"open comment", "{#" + repeat("-", 200000), "not closed"},
      {"open raw", "{% raw %}" + repeat("{% end ", 30000), "not closed"},
      {"open tag", "{%" + repeat(" ", 200000), "not closed"},
      {"ends within an escape", "{{ '\\", "not closed"},
      {"escape past Unicode", "{{ '\\U00110000' }}", "names no character"},
      {"escape of a surrogate", "{{ '\\ud800' }}", "names no character"},
      {"escape cut short", "{{ '\\x4' }}", "hexadecimal"},
      {"braces only", repeat("{", 200000), "e"},
      {"many small tags", repeat("{{1}}", 50000), ""},
      {"many names",
       [] {
         std::string s;
         for (int i = 0; i < 20000; ++i) s += "{{a" + std::to_string(i) + "}}";
         return s;
       }(),
       ""},
      {"macro of many parameters",
       [] {
         std::string s = "{% macro f(a";
         for (int i = 0; i < 3000; ++i) s += ",a" + std::to_string(i);
         return s + ") %}{% endmacro %}{{ f() }}";
       }(),
       ""},
      {"parameter twice", "{% macro f(a, a) %}{% endmacro %}", "twice"},
      {"include", "{% include '/etc/passwd' %}", "unknown"},
      {"import", "{% import 'os' as os %}", "unknown"},
      {"extends", "{% extends 'x' %}", "unknown"},
      {"way out of the sandbox", "{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"},
      {"way out by attr", "{{ (''|attr('__class__')).__mro__ }}", "unsafe"},
      {"way out by format", "{{ '{0.__class__.__mro__}'.format('') }}", "unsafe"},
      {"globals of a function", "{{ range.__globals__ }}{{ (raise_exception.__globals__)['os'] }}", "unsafe"},
      {"append", "{{ messages.append(1) }}", "unsafe"},
  };
}

// n members of an object whose keys std::hash would send to one bucket of a table of n: its rounds turned round.
std::string members_of_one_bucket(size_t n) {
  std::unordered_multimap<size_t, int> table;
  for (size_t i = 0; i < n; ++i) table.emplace(i, 0);
  constexpr uint64_t kTimes = 0xc6a4a7935bd1e995, kBegin = 0xc70f6907 ^ (8 * kTimes);
  uint64_t back = kTimes;
  for (int i = 0; i < 6; ++i) back *= 2 - kTimes * back;
  const auto mix = [](uint64_t v) { return v ^ (v >> 47); };
  std::string out;
  for (uint64_t h = 0; n > 0; h += table.bucket_count()) {
    const uint64_t block = mix(((mix(mix(h) * back) * back) ^ kBegin) * back) * back;
    const char* bytes = reinterpret_cast<const char*>(&block);
    if (!std::all_of(bytes, bytes + 8, [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; })) continue;
    out += "\"" + std::string(bytes, 8) + "\":0,";
    --n;
  }
  return out;
}

std::vector<Case> inputs() {
  const std::string print = "{{ messages|tojson }}";
  return {
      {"no list", print, "list", "{}"},
      {"deep JSON", print, "no JSON", repeat("[", 100000)},
      {"deep JSON, closed", print, "no JSON", repeat("[", 5000) + repeat("]", 5000)},
      {"JSON in JSON objects", print, "no JSON", "[" + repeat("{\"a\":", 5000) + "1" + repeat("}", 5000) + "]"},
      {"lone surrogate", print, "no JSON", R"([{"role":"user","content":"\ud800"}])"},
      {"invalid UTF-8", print, "no JSON", "[{\"role\":\"user\",\"content\":\"\xFF\"}]"},
      {"huge numbers", print, "", R"([{"a":1e308,"b":-9223372036854775809,"c":99999999999999999999999999}])"},
      {"duplicate keys", print, "", "[{" + repeat("\"a\":1,", 20000) + "\"a\":2}]"},
      {"many keys", print, "",
       [] {
         std::string s = "[{";
         for (int i = 0; i < 20000; ++i) s += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
         return s + "\"z\":0}]";
       }()},
      {"keys that would meet in one bucket", "x", "", "[{" + members_of_one_bucket(12000) + "\"z\":0}]"},
      {"many empty messages", "{% for m in messages %}{{ m.role }}{% endfor %}", "",
       "[" + repeat("{},", 50000) + "{}]"},
      {"text after the JSON", print, "no JSON", "[] []"},
      {"empty", print, "no JSON", ""},
      {"cut", print, "no JSON", R"([{"role": "us)"},
      {"NaN", print, "no JSON", "[{\"a\":NaN}]"},
      {"alternating marks", "{{ messages[0].content|list|join('-')|length }}", "",
       R"([{"role":"user","content":")" + repeat("ab", 20000) + R"("}])"},
      {"template in a message", "{{ messages[0].content }}", "",
       R"([{"role":"user","content":"{{ raise_exception('x') }}{% for %}"}])"},
  };
}

void run(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    malloc_trim(0);
    long peak_before = peak_kb();
    const double start = processor_seconds();
    std::string said;
    if (auto compiled = ChatTemplate::compile(c.source)) {
      ChatInput input;
      input.messages = c.messages;
      auto prompt = compiled->render(input);
      if (!prompt) said = prompt.error().message;
    } else {
      said = compiled.error().message;
    }
    double seconds = processor_seconds() - start;
    EXPECT_EQ(said.empty(), c.says.empty()) << c.name << ": " << said;
    EXPECT_NE(said.find(c.says), std::string::npos) << c.name << ": " << said;
    EXPECT_LT(said.size(), 400u) << c.name;
    if (!kMeasured) continue;
    EXPECT_LT(seconds, on_this_machine(0.25, seconds)) << c.name;
    EXPECT_LT(peak_kb() - peak_before, 32 * 1024) << c.name;
    if (std::getenv("IBID_VERBOSE") != nullptr) {
      std::printf("%-40s %6.1f ms %6ld kB  %s\n", c.name.c_str(), seconds * 1e3, peak_kb() - peak_before, said.c_str());
    }
  }
}

TEST(HostileTemplate, LongWorkCountsAsSteps) { run(unpaid()); }
TEST(HostileTemplate, LoopsEndWithinTheirSteps) { run(loops()); }
TEST(HostileTemplate, GrowthEndsWithinItsMemory) { run(growth()); }
TEST(HostileTemplate, NestingEndsWithinItsDepth) { run(depth()); }
TEST(HostileTemplate, SearchesStayLinear) { run(searches()); }
TEST(HostileTemplate, BadSourcesAreRefusedWithASentence) { run(sources()); }
TEST(HostileTemplate, BadInputsAreRefusedWithASentence) { run(inputs()); }

// What a model's file brings is probed when it is loaded: that costs a bounded time and never fails a load.
TEST(HostileTemplate, ProbesOfATemplateAreBounded) {
  for (const auto& cases : {loops(), searches(), unpaid()}) {
    for (const Case& c : cases) {
      const double start = processor_seconds();
      EXPECT_TRUE(ChatTemplate::for_model(c.source).ok()) << c.name;
      double seconds = processor_seconds() - start;
      // Several probes, each with a fiftieth of a render's steps.
      EXPECT_LT(seconds, kMeasured ? on_this_machine(0.5, seconds) : 60.0) << c.name;
    }
  }
}

// Arguments of a tool call are JSON inside JSON: parsed again if the template needs an object.
TEST(HostileTemplate, ArgumentsOfToolCallsAreReadWithinTheirLimits) {
  const auto chat = ChatTemplate::for_model(
      "{% for m in messages %}{{ m.content }}{% for t in m.tool_calls or [] %}{% for k, v in "
      "t.function.arguments.items()"
      " %}{{ k }}{{ v }}{% endfor %}{% endfor %}{% endfor %}");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->form().arguments, MessageForm::Arguments::kObject);
  const auto said = [&](const std::string& arguments) {
    ChatInput input;
    input.messages = R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":")" +
                     arguments + "\"}}]}]";
    const double start = processor_seconds();
    malloc_trim(0);
    const long peak_before = peak_kb();
    auto prompt = chat->render(input);
    EXPECT_LT(kMeasured ? peak_kb() - peak_before : 0, 64 * 1024) << arguments.size();
    const double seconds = processor_seconds() - start;
    EXPECT_LT(seconds, kMeasured ? on_this_machine(0.25, seconds) : 60.0);
    return prompt ? "renders" : prompt.error().message;
  };
  EXPECT_EQ(said(R"({\"a\": 1})"), "renders");
  EXPECT_EQ(said(""), "renders");
  const std::string misfit =
      "(messages[0].tool_calls[0].function.arguments is no JSON object, which this template reads.)";
  for (const std::string& arguments :
       {repeat("[", 100000), repeat("{\\\"a\\\":", 5000), std::string("{"), std::string("[1]"), std::string("5"),
        std::string("null"), repeat("[],", 300000)}) {
    EXPECT_NE(said(arguments).find(misfit), std::string::npos) << arguments.substr(0, 40);
  }
  EXPECT_NE(said(R"({\"a\":[)" + repeat("[],", 1000000) + "0]}").find("bytes of memory"), std::string::npos);
  EXPECT_EQ(said("{" + repeat("\\\"a\\\":[],", 50000) + "\\\"b\\\":1}"), "renders");
}

// A loop keeps what changed() was given; given itself, it would stay for ever with all that it loops over.
TEST(HostileTemplate, ALoopThatHoldsItselfGoesWithItsRendering) {
  const auto chat = ChatTemplate::compile("{% for m in messages %}{% set _ = loop.changed(loop) %}{% endfor %}");
  ChatInput input;
  input.messages = R"([{"role":"user","content":")" + repeat("x", 1 << 20) + R"("}])";
  const auto held = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t held_before = held();
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(chat->render(input).ok());
  EXPECT_LT(kMeasured ? held() - held_before + (1 << 20) : 0, size_t{4} << 20);
}

TEST(HostileTemplate, ThereAreAtLeastFiftyCases) {
  EXPECT_GE(loops().size() + growth().size() + depth().size() + searches().size() + sources().size() + inputs().size(),
            150u);
}

}  // namespace
}  // namespace ibid
