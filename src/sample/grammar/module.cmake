# Those with planted faults (docs/developers/planted_faults.md): planted_suite compiles copies of them and takes all others from the
# library, of which a file that came together with one of these would bring it a second time.
set(planted free_text grammars json_schema schema_lengths schema_value states token_masks)
list(TRANSFORM planted PREPEND src/sample/grammar/)
list(TRANSFORM planted APPEND .cc)
ibid_apart(${planted} src/sample/grammar/node_reach.cc)  # the last has a Lead of its own
