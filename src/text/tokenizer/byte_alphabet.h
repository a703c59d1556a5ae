// The alphabet of byte-level BPE: every byte as one printable code point (GPT-2's encoder.py, bytes_to_unicode).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ibid::byte_alphabet {

std::optional<unsigned char> byte_of(char32_t code_point);
const std::array<std::string, 256>& spellings();  // UTF-8 of each byte's code point
void append_spelled(std::string_view bytes, std::string& out);
// Appends the bytes that `token` spells; false, with nothing appended, where a character is outside the alphabet.
bool append_bytes(std::string_view token, std::string& out);

}  // namespace ibid::byte_alphabet
