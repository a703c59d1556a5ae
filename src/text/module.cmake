ibid_apart(src/text/normalizer.cc src/text/pre_tokenizer.cc src/text/jinja_methods_is.cc)
target_link_libraries(ibid_text ${scope} ${BOOST_JSON} ${PCRE2_8})
