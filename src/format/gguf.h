// GGUF, versions 2 and 3, little-endian: the file format of the ggml family, as its specification
// (ggml/docs/gguf.md) states it.
//
// Refused with a sentence: version 1, big-endian files, tensor types that DType does not have (each by its name), an
// alignment that is not a power of two and a multiple of 8, nested arrays.
//
// A model may be split into files NAME-00001-of-0000N.gguf (keys split.no, split.count, split.tensors.count). The name
// of any of them opens all; metadata are those of the first.
// All of the file is bytes from outside: every length is checked against what is left of the file before use, every
// product is checked for overflow, and reading a file never takes memory beyond a small multiple of its header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

Result<ModelFile> open_gguf(const std::string& path);
Result<ModelFile> read_gguf(MappedFile file);  // that is no part of a split model

// The files of a split model, in order, by the name or path of one of them; any other name alone.
std::vector<std::string> split_files(const std::string& name);

// The number by which GGUF files name a type, -1 for types it has no number for; and back.
int ggml_type(DType dtype);
Result<DType> dtype_from_ggml_type(uint32_t number);

}  // namespace ibid
