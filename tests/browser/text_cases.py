"""What a model may write: attacks, long texts, and the Markdown that is meant to be seen."""

# What is written, and a part of it that must stand in the text as it was written (None: all of it).
ATTACKS = {
    "script": ("<script>window.hit = 1</script>", None),
    "img onerror": ("<img src=x onerror=window.hit=1>", None),
    "svg onload": ("<svg/onload=window.hit=1>", None),
    "iframe": ('<iframe srcdoc="<script>parent.hit=1</script>"></iframe>', None),
    "style": ("<style>body{display:none}</style><b style='position:fixed'>x</b>", None),
    "form": ('<form action="https://evil.example"><input name=key></form>', None),
    "base and meta":
        ('<base href="https://evil.example/"><meta http-equiv=refresh content="0;url=https://evil.example">', None),
    "entities": ("&lt;img src=x onerror=window.hit=1&gt; &#60;b&#62;", "<img src=x onerror=window.hit=1> <b>"),
    "entities that make marks": ("&#42;&#42;a&#42;&#42; &#96;b&#96; &lbrack;c](https&colon;//x.example) &#x24;x&#36;", "**a** `b` [c](https://x.example) $x$"),
    "entities that are none": ("&nosuchname; &#; &#x; &amp &#99999999; &#0;&#xD800;", "&nosuchname; &#; &#x; &amp &#99999999; \ufffd\ufffd"),
    "entities in a target": ("[a](https://x.example/&quot;onclick=&quot;window.hit=1) [b](https&colon;//x) [c](&#106;avascript:window.hit=1)",
                             "[b](https://x) [c](javascript:window.hit=1)"),
    "elements with attributes": ("<br onload=window.hit=1><sup onclick=window.hit=1>a</sup><kbd style='position:fixed'>b</kbd><sub", None),
    "elements in elements": ("<sup><img src=x onerror=window.hit=1></sup> <sub>a<script>window.hit=1</script></sub>", None),
    "a note": ("a[^1] [^<b>]\n\n[^1]: <img src=x onerror=window.hit=1> [x](javascript:window.hit=1)",
               "<img src=x onerror=window.hit=1> [x](javascript:window.hit=1)"),
    "a note of a property": ("a[^__proto__] [^constructor]\n\n[__proto__]: https://x.example\n\n[a][__proto__] [constructor]", "[^constructor]"),
    "reference to a script": ("[a][1] [1]\n\n[1]: javascript:window.hit=1\n[2]: data:text/html,x", "[1]: javascript:window.hit=1"),
    "a task": ("- [x] <script>window.hit=1</script>\n- [ ] <input onfocus=window.hit=1 autofocus>", "<input onfocus=window.hit=1 autofocus>"),
    "an address in angle brackets": ("<https://x.example/\"onmouseover=\"window.hit=1> <javascript:window.hit=1> <https://x onclick=window.hit=1>",
                                     "<javascript:window.hit=1>"),
    "code of blanks": ("    <script>window.hit=1</script>\n    <img src=x onerror=window.hit=1>", "<script>window.hit=1</script>\n<img src=x onerror=window.hit=1>"),
    "JSON": ('{"a": "<img src=x onerror=window.hit=1>"}', None),
    "scripts of other alphabets": ("$\\mathbf{<img>} \\mathcal{</math><script>window.hit=1</script>} \\overline{a} \\underline{b}$", "ab"),
    "javascript link": ("[click](javascript:window.hit=1)", None),
    "javascript link with an authority":
        ("[a](javascript://x.example/%0awindow.hit=1) [b](javascript:https://x)", None),
    "javascript link in disguise":
        ("[a](JaVaScRiPt:window.hit=1) [b](java\tscript:window.hit=1) [c](&#106;avascript:window.hit=1)",
         "[a](JaVaScRiPt:window.hit=1) [b](java\tscript:window.hit=1) [c](javascript:window.hit=1)"),
    "javascript in angle brackets": ("[a](<javascript:window.hit=1>) <javascript:window.hit=1>", None),
    "data link": ("[a](data:text/html;base64,PHNjcmlwdD4=)", None),
    "vbscript, file, blob": ("[a](vbscript:x) [b](file:///etc/passwd) [c](blob:http://x/y)", None),
    "link by reference": ("[a][1]\n\n[1]: javascript:window.hit=1", "[1]: javascript:window.hit=1"),
    "quote in a link": ('[a](https://x.example/"onmouseover="window.hit=1)', None),
    "title of a link": ('[a](https://x.example "t" onclick="window.hit=1")', None),
    "markup in a link's text":
        ("[<img src=x onerror=window.hit=1>](https://x.example)", "<img src=x onerror=window.hit=1>"),
    "picture of elsewhere": ("![alt](https://evil.example/pixel.png)", "alt"),
    "picture of data": ("![a](data:image/svg+xml;base64,AAAA) ![b](javascript:window.hit=1)", None),
    "script in code": ("`<script>window.hit=1</script>` ``<img onerror=window.hit=1>``",
                       "<script>window.hit=1</script> <img onerror=window.hit=1>"),
    "fence in a fence": ("````md\n```html\n<script>window.hit=1</script>\n```\n````\nafter",
                         "```html\n<script>window.hit=1</script>\n```"),
    "fence that does not close": ("```html\n<script>window.hit=1</script>\n<img src=x onerror=window.hit=1>",
                                  "<script>window.hit=1</script>\n<img src=x onerror=window.hit=1>"),
    "name of a language": ('```"><script>window.hit=1</script>\nx\n```', "x"),
    "property as a language": ("```__proto__\nx\n```\n\n```constructor\ny\n```", "constructor"),
    "table": ("|<script>window.hit=1</script>|b|\n|-|-|\n|<img src=x onerror=window.hit=1>|[x](javascript:window.hit=1)|",
              "<img src=x onerror=window.hit=1>[x](javascript:window.hit=1)"),
    "heading, list, quote": ("# <script>window.hit=1</script>\n- <img src=x onerror=window.hit=1>\n> <b>x</b>",
                             "<script>window.hit=1</script><img src=x onerror=window.hit=1><b>x</b>"),
    "script in a formula": ("$\\text{<script>window.hit=1</script>}$ $$<img src=x onerror=window.hit=1>$$",
                            "<script>window.hit=1</script>"),
    "link of a formula": ("$\\href{javascript:window.hit=1}{a}$ $\\style{position:fixed}{b}$", None),
    "bare addresses": ('https://x.example/"onmouseover="window.hit=1 javascript:https://x.example data:https://x', None),
    "markup in coloured code": ("```js\n'<img src=x onerror=window.hit=1>' // </span><script>window.hit=1</script>\n```",
                                "'<img src=x onerror=window.hit=1>' // </span><script>window.hit=1</script>"),
    "directions and zeros": ("\u202egnp.exe\u202c a\u0000b \ufeff [a](https://x.example/\u202e)", "gnp.exe"),
    "template of another engine": ("{{constructor.constructor('window.hit=1')()}} ${window.hit=1}", None),
}

# Each would take minutes where a pass is quadratic or worse.
LONG = {
    "one word": "a" * 100_000,
    "blanks": " " * 100_000 + "x",
    "blanks below a bar": "|a|\n" + " " * 100_000 + "x",
    "stars": "*" * 100_000,
    "stars apart": "* " * 50_000 + "x",
    "bold that does not end": "**a " * 25_000,
    "emphasis that does not end": "*a _b " * 16_000,
    "nested emphasis": "*a **b " * 10_000 + "b** a* " * 10_000,
    "backticks of every length": " ".join("`" * n for n in range(1, 440)),
    "backticks": "`" * 100_001 + "a`",
    "brackets": "[" * 50_000 + "]" * 50_000,
    "links that do not end": "[a](http://x" * 8_000,
    "brackets and targets": "[](" * 30_000,
    "parentheses in a link": "[a](http://x/" + "(" * 90_000,
    "quotes in quotes": ">" * 100_000,
    "lists in lists": "\n".join(" " * n + "- a" for n in range(400)),
    "quote in list in quote": "> - " * 20_000,
    "rule that is none": "- " * 50_000 + "x",
    "fence that is none": "`" * 50_000 + " x ` " + "~" * 40_000,
    "table without cells": "|a" * 30 + "|\n" + "|-" * 30 + "|\n" + "|\n" * 30_000,
    "wide table": "|a" * 20_000 + "|\n" + "|-" * 20_000 + "|\n" + "|\n" * 2_000,
    "escapes": "\\" * 100_000,
    "lines": "x\n" * 50_000,
    "numbers": "1. a\n" * 20_000,
    "headings": "# a\n" * 20_000,
    "heading of blanks": "#" + " " * 100_000,
    "formulas that do not end": "$a " * 33_000,
    "formulas in formulas": "$$" + "{" * 3_900 + "$$ " + "$$ \\frac{" * 10_000,
    "brackets of formulas": "\\(a " * 25_000 + "\\[b" * 25_000,
    "blocks of formulas": "$$\nx\n" * 15_000,
    "addresses": "https://a.b/" * 8_000,
    "addresses that are none": "https://" * 12_000 + "x" * 3_000,
    "closing an address": "https://a.b/" + ")" * 90_000,
    "code of quotes": "```js\n" + "\"a\\" * 16_000 + "\n```",
    "code of comments": "```c\n" + "/* " * 16_000 + "\n```",
    "code of backticks": "~~~js\n" + "`a" * 20_000 + "\n~~~",
    "entities": "&amp;" * 20_000 + "&" * 20_000 + "&#1" * 20_000,
    "angle brackets": "<" * 50_000 + "<https://x" * 5_000 + "<sup>" * 10_000,
    "notes": "[^1]: x\n" * 10_000 + "[^a]" * 20_000,
    "notes of one paragraph": "[^1]: x\n" + "y\n" * 40_000,
    "targets of links": "".join(f"[a{i}]: https://x.example/{i}\n" for i in range(4_000)) + "[b][a1] " * 8_000,
    "brackets with a target": "[a]: https://x.example\n\n" + "[" * 30_000 + "a" + "]" * 30_000,
    "tasks": "- [ ] a\n" * 15_000,
    "code of blanks": "    a\n" * 25_000,
    "underlined": "a\n===\n" * 15_000,
    "bars in a cell": "|a|\n|-|\n" + "|" + "\\|" * 50_000,
    "JSON that is deep": "[" * 50_000 + "]" * 50_000,
    "JSON that ends wrong": "[" + "1," * 50_000 + "]",
    "environments that do not end": "\\begin{align}\nx\n\n" * 10_000,
    "hashes after a heading": "# " + "# " * 40_000 + "x",
}


def code(language, text):
    bar = f'<div class="bar"><span>{language}</span></div>'
    return f'<div class="code">{bar}<pre tabindex="0"><code>{text}</code></pre></div>'


def link(target, text):
    return f'<a href="{target}" title="{target}" rel="noopener noreferrer nofollow" target="_blank">{text}</a>'


def math(inner, source, display=""):
    return f'<math{display} alttext="{source}"><mrow>{inner}</mrow></math>'


# The subset that is meant to be seen, and the elements that it becomes.
SHOWN = {
    "a **b** *c* `d` ~~e~~": "<p>a <strong>b</strong> <em>c</em> <code>d</code> <del>e</del></p>",
    "***a*** __b__ snake_case_name 2 * 3": "<p><em><strong>a</strong></em> <strong>b</strong> snake_case_name 2 * 3</p>",
    "**a *b* c** \\*d\\*": "<p><strong>a <em>b</em> c</strong> *d*</p>",
    "# A\n## B\ntext": "<h3>A</h3><h4>B</h4><p>text</p>",
    "- a\n- b\n  - c\n\n- d": "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
    "3. a\n   more\n4. b\n   - c": '<ol start="3"><li>a\nmore</li><li>b<ul><li>c</li></ul></li></ol>',
    "1. a\n\n   ```py\n   x = 1\n     y\n   ```\n2. b": "<ol><li>a" + code("py", 'x = <span class="number">1</span>\n  y') + "</li><li>b</li></ol>",
    "In\n1984. It was\n- so": "<p>In\n1984. It was</p><ul><li>so</li></ul>",
    "> a\n> > b\n\nc": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "|a|b|\n|:-|-:|\n|1|**2**|":
        '<div class="wide" tabindex="0"><table><tr><th>a</th><th class="right">b</th></tr>'
        '<tr><td>1</td><td class="right"><strong>2</strong></td></tr></table></div>',
    "[a](https://x.example/b_(c)) x": f"<p>{link('https://x.example/b_(c)', 'a')} x</p>",
    "`` a`b `` and `c": "<p><code>a`b</code> and `c</p>",
    "~~~\na\n```\nb\n~~~": code("text", "a\n```\nb"),
    "see https://x.example/a_(b)_c. Or (https://x.example/d), https://": f"<p>see {link('https://x.example/a_(b)_c', 'https://x.example/a_(b)_c')}"
        f". Or ({link('https://x.example/d', 'https://x.example/d')}), https://</p>",
    "it costs $5 and $6, or 3$ to 4$": "<p>it costs $5 and $6, or 3$ to 4$</p>",
    "I have $20 and you have 30$.": "<p>I have $20 and you have 30$.</p>",
    "so $x_1^2$ is": f"<p>so {math('<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>', 'x_1^2')} is</p>",
    "$\\unknown{x}$ and $a{b$": "<p>$\\unknown{x}$ and $a{b$</p>",
    "$$\n\\frac{1}{\\sqrt 2}\n$$": '<div class="wide" tabindex="0">' + math(
        "<mfrac><mn>1</mn><msqrt><mn>2</mn></msqrt></mfrac>", "\\frac{1}{\\sqrt 2}", ' display="block"') + "</div>",
    "\\(\\alpha \\le \\mathbb{R}\\)": f"<p>{math('<mi>α</mi><mo>≤</mo><mi>ℝ</mi>', chr(92) + 'alpha ' + chr(92) + 'le ' + chr(92) + 'mathbb{R}')}</p>",
    "$\\sum_{i=0}^n \\left( i \\right)$": "<p>" + math(
        '<munderover><mo movablelimits="true">∑</mo><mrow><mi>i</mi><mo>=</mo><mn>0</mn></mrow><mi>n</mi></munderover>'
        '<mrow><mo stretchy="true">(</mo><mi>i</mi><mo stretchy="true">)</mo></mrow>', "\\sum_{i=0}^n \\left( i \\right)") + "</p>",
    "$\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}$": "<p>" + math(
        "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable>"
        "<mo>)</mo></mrow>".replace("<mo>", '<mo stretchy="true">'), "\\begin{pmatrix} 1 &amp; 2 \\\\ 3 &amp; 4 \\end{pmatrix}") + "</p>",
    "```js\nlet a = \"b\"; // 1\n```": code("js", '<span class="word">let</span> a = <span class="string">"b"</span>; '
                                            '<span class="comment">// 1</span>'),
    "```sql\nSELECT 12 -- x\n```": code("sql", '<span class="word">SELECT</span> <span class="number">12</span> '
                                        '<span class="comment">-- x</span>'),
    "a < b && c > d": "<p>a &lt; b &amp;&amp; c &gt; d</p>",
    "- [ ] a\n- [x] **b**\n  - [X] c\n- [y] d": '<ul><li class="task"><input type="checkbox" disabled="" aria-label="to do">a</li>'
        '<li class="task"><input type="checkbox" disabled="" aria-label="done" checked=""><strong>b</strong><ul><li class="task">'
        '<input type="checkbox" disabled="" aria-label="done" checked="">c</li></ul></li><li>[y] d</li></ul>',
    "&amp; &lt;b&gt; &copy; &euro;5 &mdash; &#8364; &#x1F600; &Auml; &nope;": "<p>&amp; &lt;b&gt; © €5 — € 😀 Ä &amp;nope;</p>",
    "`&amp;` and\n\n```\n&amp;\n```": "<p><code>&amp;amp;</code> and</p>" + code("text", "&amp;amp;"),
    "a[^1] b[^why] [^no]\n\n[^1]: The *first*.\n[^why]: Because.": '<p>a<sup class="figure">1</sup> b<sup class="figure">why</sup> [^no]</p>'
        '<p class="note"><sup class="figure">1</sup> The <em>first</em>.</p><p class="note"><sup class="figure">why</sup> Because.</p>',
    "[a][D] [d] [e]\n\n[d]: https://x.example/?a=1&amp;b=2": f"<p>{link('https://x.example/?a=1&amp;b=2', 'a')} {link('https://x.example/?a=1&amp;b=2', 'd')} [e]</p>",
    "[unused]: https://x.example": f"<p>[unused]: {link('https://x.example', 'https://x.example')}</p>",
    "<https://x.example/a> H<sub>2</sub>O x<sup>2</sup> <kbd>F1</kbd> a<br>b": f"<p>{link('https://x.example/a', 'https://x.example/a')} "
        "H<sub>2</sub>O x<sup>2</sup> <kbd>F1</kbd> a<br>b</p>",
    "[a](<https://x.example/b>) [c]( https://x.example/d 'e' )": f"<p>{link('https://x.example/b', 'a')} {link('https://x.example/d', 'c')}</p>",
    "\u65e5\u672c**\u300c\u592a\u300d**\u3067\u3059 a**(b)**c": "<p>\u65e5\u672c<strong>\u300c\u592a\u300d</strong>\u3067\u3059 a**(b)**c</p>",
    "Title\n===\ntext": "<h3>Title</h3><p>text</p>",
    "## A ##\n# C#": "<h4>A</h4><h3>C#</h3>",
    "a\n\n    x = 1\n      y\n\nb": "<p>a</p>" + code("text", "x = 1\n  y") + "<p>b</p>",
    "a\\\nb": "<p>a\nb</p>",
    "|a \\| b|c|\n|-|-|\n|1|A cell of some words, more than a few|": '<div class="wide" tabindex="0"><table><tr><th>a | b</th><th>c</th></tr>'
        '<tr><td>1</td><td class="long">A cell of some words, more than a few</td></tr></table></div>',
    "- \u05d0\u05d1": '<ul dir="auto"><li>\u05d0\u05d1</li></ul>',
    "> \u0645\u0631": '<blockquote dir="auto"><p>\u0645\u0631</p></blockquote>',
    "\\begin{align}\nx &= 1\n\\end{align}": '<div class="wide" tabindex="0">' + math(
        '<mrow><mtable><mtr><mtd class="right"><mi>x</mi></mtd><mtd class="left"><mo>=</mo><mn>1</mn></mtd></mtr></mtable></mrow>',
        "\\begin{align}\nx &amp;= 1\n\\end{align}", ' display="block"').replace("<mrow><mrow>", "<mrow><mrow>") + "</div>",
    "$\\overline{AB}$": f"<p>{math('<mrow class=' + chr(34) + 'lined-above' + chr(34) + '><mrow><mi>A</mi><mi>B</mi></mrow></mrow>', chr(92) + 'overline{AB}')}</p>",
    '{"a": [1, 2.0],\n  "b": "<i>"}': '<div class="code folds"><div class="bar"><span>json</span></div><pre tabindex="0"><code>{<span class="string">"a"</span>: '
        '[<span class="number">1</span>, <span class="number">2.0</span>],\n  <span class="string">"b"</span>: <span class="string">"&lt;i&gt;"</span>}</code></pre></div>',
    '{"a": 1} and more': '<p>{"a": 1} and more</p>',
}
