# cmake -DOUT=page_files.cc -DDIR=page -P embed.cmake: the files of the page as arrays of bytes.
set(text "#include \"server/page_files.h\"\n\nnamespace ibid {\nnamespace {\n\n")
set(rows "")
foreach(entry "index.html|/|text/html" "app.css|/app.css|text/css"
              "app.js|/app.js|text/javascript" "markdown.js|/markdown.js|text/javascript"
              "icon.svg|/icon.svg|image/svg+xml")
  string(REPLACE "|" ";" parts "${entry}")
  list(GET parts 0 name)
  list(GET parts 1 path)
  list(GET parts 2 type)
  string(MAKE_C_IDENTIFIER "${name}" symbol)
  file(READ ${DIR}/${name} hex HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
  string(REGEX REPLACE "(('..x..',){24})" "\\1\n" bytes "${bytes}")
  string(APPEND text "constexpr char k_${symbol}[] = {${bytes}'\\0'};\n\n")
  string(APPEND rows "    {\"${path}\", \"${type}\", {k_${symbol}, sizeof k_${symbol} - 1}},\n")
endforeach()
string(APPEND text "constexpr PageFile kFiles[] = {\n${rows}};\n\n}  // namespace\n\nstd::span<const PageFile> page_files() { return kFiles; }\n\n}  // namespace ibid\n")
file(WRITE ${OUT} "${text}")
