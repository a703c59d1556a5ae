ibid_apart(src/text/jinja/methods_is.cc)
