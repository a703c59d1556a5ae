file(GLOB architectures CONFIGURE_DEPENDS src/model/arch/*.cc)
ibid_apart(${architectures} src/model/activation_sums.cc src/model/convert.cc src/model/gguf_form.cc)
# What bench/compare_kl.py runs; not part of the product.
add_executable(log_probs EXCLUDE_FROM_ALL bench/log_probs.cc)
target_link_libraries(log_probs PRIVATE ibid_model)
