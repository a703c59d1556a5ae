ibid_apart(src/engine/engine_thread.cc)
