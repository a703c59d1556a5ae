// The flags of pictures: llama.cpp's names.
#include "cli/options/command_line.h"

namespace ibid::cli {

void add_picture_options(CLI::App* command, host::PictureArgs& o) {
  o.tower.clear();  // the folder's own
  command
      ->add_option(
          "--mmproj", o.tower,
          "GGUF file with the model's vision tower (mmproj), or none; default: the tower in the model's folder")
      ->type_name("PATH");
  add_read(command, "--image-max-tokens", o.max_tokens, "N", "4096",
           "maximum tokens of a picture; larger ones are shrunk",
           [](std::string_view text) { return read_whole(text, 1, 65536); });
}

}  // namespace ibid::cli
