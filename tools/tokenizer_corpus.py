"""The strings that tokenizers are compared on: string i of a corpus is a function of (seed, i), the same here and in
tests/conformance/tokenizer_corpus.h. All Unicode planes, runs, emoji, marks, right-to-left, code in ten languages."""

WORDS = ("the of and to in is it was for on that with he as his at be this from I have or by one had not but what all "
         "were when we there can an your which their said if do will each about how up out them then she many some so "
         "these would other into has more her two like him see time could no make than first been its who now people my "
         "made over did down only way find use may water long little very after words called just where most know "
         "don't I'll we've she's they'd I'm you're WE'LL IT'S He'D Strasse naïve café façade Zoë Ångström œuvre résumé "
         "HTTPServer camelCase snake_case TOKEN iPhone McDonald Ǆungla ǅ ſay'ſ ﬁne İstanbul ß ẞ").split(" ")
CODE = [
    "def f_{}(x, *args):\n    return x ** {} if x != 'a' else None\n",
    "#include <vector>\nint main() {{ std::vector<int> v{{{}}}; return v[{}] << 2; }}\n",
    "function f{}(a) {{\n\treturn a === {} ? `${{a}}` : null; // TODO\n}}\n",
    "fn main() {{ let x_{}: &'static str = \"{}\"; println!(\"{{:?}}\", x); }}\n",
    "public class A{} {{ private final int n = {}; @Override public String toString() {{ return \"\"; }} }}\n",
    "func (s *Server{}) Do(ctx context.Context) error {{\n\tif err := s.x[{}]; err != nil {{ return err }}\n}}\n",
    "SELECT a{}, COUNT(*) FROM t WHERE b >= {} GROUP BY 1 ORDER BY 2 DESC;\n",
    "for i in $(seq {}); do echo \"$i\" | sed -e 's/^[0-9]\\{{{}\\}}//g' >> out.txt; done\n",
    "main{} = do\n  let xs = [x | x <- [1..{}], even x]\n  mapM_ print $ xs >>= \\y -> [y, -y]\n",
    "<div class=\"c{}\" style='width: {}%'>&nbsp;&lt;b&gt;<!-- x --></div>\r\n",
]
SPACES = [0x20, 0x20, 0x20, 0x09, 0x0A, 0x0D, 0x0A, 0xA0, 0x3000, 0x2028, 0x85, 0x2009, 0x0B, 0x200B, 0x1680]
RUNS = [0x61, 0x20, 0x0A, 0x30, 0x2D, 0x1F600, 0x4E2D, 0x41, 0xE9, 0x301, 0x2581, 0x3D, 0x27]
EMOJI = [0x1F600, 0x1F468, 0x1F469, 0x1F466, 0x200D, 0xFE0F, 0x1F3FD, 0x2764, 0x1F1E9, 0x1F1EA, 0x1F525, 0x20E3, 0x31,
         0x1F9D1, 0x1F680, 0x1FAE0, 0xE0067]
PUNCTUATION = ".,;:!?-()[]{}<>/\\|@#$%^&*_+=~`'\"“”‘’…—。，、！？「」（）｛｝"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<mask>", "[MASK]", "<s>", "</s>", "<unk>", "[UNK]", "word", "Straße", "  ",
            "▁", "<0x41>", "<pad>", "##", "</w>", "éa", "<|im_", "\n\n"]
RANGES = [(0x00, 0x7F), (0x80, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x531, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF),
          (0xE00, 0xFFF), (0x10A0, 0x1CFF), (0x1D00, 0x1FFF), (0x2000, 0x2BFF), (0x2C00, 0x2E7F), (0x2E80, 0x33FF),
          (0x3400, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xFAFF), (0xFB00, 0xFFFF), (0x10000, 0x107FF),
          (0x10800, 0x12FFF), (0x13000, 0x1BFFF), (0x1D000, 0x1D7FF), (0x1E000, 0x1F2FF), (0x1F300, 0x1FAFF),
          (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0x40000, 0xDFFFF), (0xE0000, 0xE0FFF), (0xF0000, 0x10FFFF)]
MASK = (1 << 64) - 1


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014)."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31

    def below(self, n):
        return (self.next() >> 33) % n

    def of(self, items):
        return items[self.below(len(items))]

    def between(self, low, high):
        c = low + self.below(high - low + 1)
        return 0xFFFD if 0xD800 <= c < 0xE000 else c


def piece(r, kind):
    n = 1 + r.below(12)
    if kind == 0:
        return "".join(r.of(WORDS) + (" " if r.below(5) else r.of(PUNCTUATION) + " ") for _ in range(n))
    if kind == 1:
        return "".join(chr(r.of(SPACES)) for _ in range(n))
    if kind == 2:
        return chr(r.of(RUNS)) * (1 + (r.below(600) if r.below(20) == 0 else r.below(40)))
    if kind == 3:
        return "".join(chr(r.of(EMOJI)) for _ in range(n))
    if kind == 4:
        return "".join(chr(r.between(0x300, 0x345) if r.below(2) else r.between(0x61, 0x7A)) for _ in range(n)) + "".join(
            chr(r.between(0x1100, 0x11FF)) for _ in range(r.below(4)))
    if kind == 5:
        return "".join(chr(r.between(0x5D0, 0x5EA) if r.below(2) else r.between(0x610, 0x6D3)) for _ in range(n))
    if kind == 6:
        low, high = r.of(RANGES)
        return "".join(chr(r.between(low, high)) for _ in range(n))
    if kind == 7:
        a, b = r.below(1000), r.below(100000)
        return r.of(CODE).format(a, b)
    if kind == 8:
        return "".join(chr(r.between(0x30, 0x39)) if r.below(6) else r.of(".,:eE-½²٣५Ⅷ①") for _ in range(n))
    if kind == 9:
        return "".join(chr(r.of([r.between(0x4E00, 0x9FA5), r.between(0x3041, 0x30FF), r.between(0xAC00, 0xD7A3), 0x3002,
                                 0xFF0C, 0x7684, 0x662F])) for _ in range(n))
    if kind == 10:
        return "".join(r.of(PUNCTUATION) for _ in range(n))
    return r.of(SPECIALS)


def string(seed, i):
    r = Random(seed * 1000003 + i)
    return "".join(piece(r, r.below(12)) + (" " if r.below(3) == 0 else "") for _ in range(1 + r.below(6)))
