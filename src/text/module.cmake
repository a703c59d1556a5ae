ibid_apart(src/text/tokenizer/json_vocabulary.cc src/text/tokenizer/normalizer.cc src/text/tokenizer/pre_tokenizer.cc)
target_link_libraries(ibid_text ${scope} ${PCRE2_8})
