ibid_apart(src/engine/engine_thread.cc)
# What tools/train_heads.py reads; not part of the product.
add_executable(hidden_states EXCLUDE_FROM_ALL bench/hidden_states.cc)
target_link_libraries(hidden_states PRIVATE ibid_engine)
