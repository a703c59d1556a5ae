// Colours of code: its comments, strings, numbers and words, as spans. One pass, linear in the text; a language that is not
// known stays plain, and so does what is longer than anybody reads.

const kMost = 50_000;  // characters
const words = (text) => new Set(text.split(" "));
const kSlash = words("abstract as async await auto bool boolean break case catch chan char class const constexpr continue " +
  "crate default defer delete do double else enum export extends extern false final finally float fn for foreach from func " +
  "function go goto if impl implements import in inline instanceof int interface internal is let long loop match mod module " +
  "move mut namespace new nil noexcept null nullptr of operator override package private protected pub public range ref " +
  "return self short signed sizeof static string struct super switch template this throw throws trait true try type typedef " +
  "typename typeof undefined union unsafe unsigned use using var virtual void volatile when where while with yield");
const kHash = words("False None True alias and as assert async await begin break case class continue def del do done elif " +
  "else elsif end esac except export fi finally for from function global if import in is lambda local module nil nonlocal not " +
  "or pass raise rescue return self set source then true false null try unless until when while with yield");
const kSql = words("add all alter and as asc begin between by case commit create delete desc distinct drop else end exists " +
  "foreign from full group having in index inner insert into is join key left like limit not null offset on or order outer " +
  "primary references right rollback select set table then union unique update using values view when where with");
const kJson = words("true false null");

// What begins a comment; every alternative ends at the end of the text at the latest.
const kText = String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?`;
const kRest = String.raw`(?<number>\b\d[\w.]*)|(?<word>[\p{L}_$@][\w$]*)|[^\p{L}\d_$@"'\x60/#<-]+|[^]`;
const rule = (comment, text = kText) => new RegExp(`(?<comment>${comment})|(?<text>${text})|${kRest}`, "yu");
const slash = { rule: rule(String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`, kText + String.raw`|\x60(?:[^\x60\\]|\\[^])*\x60?`), words: kSlash };
const hash = { rule: rule(String.raw`#[^\n]*`), words: kHash };
const sql = { rule: rule(String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`), words: kSql, fold: true };
const json = { rule: rule(String.raw`\/\/[^\n]*`), words: kJson };
const markup = { rule: rule(String.raw`<!--[^]*?(?:-->|$)`), words: new Set() };
const kLanguages = new Map([
  ...["c", "cc", "cpp", "c++", "cs", "csharp", "css", "cuda", "dart", "go", "h", "hpp", "java", "javascript", "js", "jsx", "kotlin",
    "objc", "php", "rs", "rust", "scala", "swift", "ts", "tsx", "typescript", "zig"].map((name) => [name, slash]),
  ...["bash", "cmake", "console", "dockerfile", "elixir", "julia", "make", "makefile", "perl", "py", "python", "r", "rb", "ruby",
    "sh", "shell", "toml", "yaml", "yml", "zsh"].map((name) => [name, hash]),
  ["sql", sql], ["json", json], ["jsonc", json], ["html", markup], ["xml", markup], ["svg", markup],
]);

function span(kind, text) {
  const node = document.createElement("span");
  node.className = kind;
  node.textContent = text;
  return node;
}

// Puts `text` into `parent`.
export function highlight(parent, text, name) {
  const language = kLanguages.get(name.toLowerCase());
  if (!language || text.length > kMost) {
    parent.textContent = text;
    return;
  }
  let plain = "";
  const put = (kind, piece) => {
    if (plain) parent.append(plain);
    plain = "";
    parent.append(span(kind, piece));
  };
  for (let i = 0; i < text.length;) {
    language.rule.lastIndex = i;
    const found = language.rule.exec(text);
    const { comment, text: quoted, number, word } = found.groups;
    if (comment) put("comment", comment);
    else if (quoted) put("string", quoted);
    else if (number) put("number", number);
    else if (word && language.words.has(language.fold ? word.toLowerCase() : word)) put("word", word);
    else plain += found[0];
    i = language.rule.lastIndex;
  }
  if (plain) parent.append(plain);
}
