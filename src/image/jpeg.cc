#include <csetjmp>
#include <cstdio>  // which the next ones need

#include <jerror.h>
#include <jpeglib.h>

#include <string>
#include <string_view>
#include <vector>

#include "image/decoders.h"
#include "image/orientation.h"

namespace ibid {
namespace {

// One decompressor over bytes in memory. libjpeg reports errors by leaving its caller (longjmp): functions that call it
// here have no objects with destructors of their own.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> bytes) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { std::longjmp(static_cast<JpegReader*>(info->client_data)->jump_, 1); };
    // Warnings: the picture goes on, except where data end before the pixels that the header claims.
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && info->err->msg_code == JWRN_HIT_MARKER) info->err->error_exit(info);
    };
    errors_.output_message = [](j_common_ptr) {};
    info_.client_data = this;
    if (setjmp(jump_) != 0) return;
    jpeg_create_decompress(&info_);
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      info->err->msg_code = JERR_INPUT_EOF;
      info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
      return FALSE;
    };
    source_.skip_input_data = [](j_decompress_ptr info, long n) {
      if (n <= 0) return;
      if (static_cast<size_t>(n) > info->src->bytes_in_buffer) info->src->fill_input_buffer(info);
      info->src->next_input_byte += n;
      info->src->bytes_in_buffer -= static_cast<size_t>(n);
    };
    info_.src = &source_;
    progress_.progress_monitor = [](j_common_ptr info) {
      auto* self = static_cast<JpegReader*>(info->client_data);
      if (self->info_.input_scan_number <= self->max_scans_) return;
      self->too_many_scans_ = true;
      std::longjmp(self->jump_, 1);
    };
    info_.progress = &progress_;
    created_ = true;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header() {
    if (!created_ || setjmp(jump_) != 0) return false;
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  // `rgb`: height x width x 3. `row`: 4 x width bytes.
  bool decode(int max_scans, uint8_t* rgb, uint8_t* row) {
    if (setjmp(jump_) != 0) return false;
    max_scans_ = max_scans;
    const bool inks = info_.num_components == 4;
    info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    // What has the same bits in all of the library's vector code.
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = TRUE;
    info_.do_block_smoothing = TRUE;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW to = inks ? row : rgb + size_t{3} * info_.output_width * info_.output_scanline;
      const size_t y = info_.output_scanline;
      if (jpeg_read_scanlines(&info_, &to, 1) != 1) return false;
      if (inks) print(row, rgb + size_t{3} * info_.output_width * y);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  Error error() {
    if (too_many_scans_) {
      return invalid("The JPEG picture has more than " + std::to_string(max_scans_) + " scans, which is the most.");
    }
    switch (errors_.msg_code) {
      case JERR_OUT_OF_MEMORY:
        return out_of_memory();
      case JERR_INPUT_EOF:
      case JWRN_HIT_MARKER:
        return invalid("The JPEG picture is cut off.");
      default: {
        char text[JMSG_LENGTH_MAX] = {};
        errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text);
        return invalid("The JPEG picture is damaged: " + std::string(text) + ".");
      }
    }
  }

  const jpeg_decompress_struct& info() const { return info_; }
  bool several_scans() { return jpeg_has_multiple_scans(&info_) != FALSE; }

 private:
  // A row of inverted CMYK as Pillow makes RGB of it.
  void print(const uint8_t* inks, uint8_t* rgb) const {
    for (size_t x = 0; x < info_.output_width; ++x, inks += 4, rgb += 3) {
      const uint32_t light = inks[3];  // 255 - K
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t product = (255u - inks[c]) * light + 128;  // divided by 255 and rounded
        const uint32_t ink = ((product >> 8) + product) >> 8;
        rgb[c] = static_cast<uint8_t>(light > ink ? light - ink : 0);
      }
    }
  }

  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_ = {};
  int max_scans_ = 1 << 30;
  bool created_ = false;
  bool too_many_scans_ = false;
};

Status read_header(JpegReader& reader) {
  if (!reader.read_header()) return reader.error();
  const int n = reader.info().num_components;
  if (n != 1 && n != 3 && n != 4) {
    return unsupported("The JPEG picture has " + std::to_string(n) + " components; 1, 3 and 4 are read.");
  }
  return {};
}

// Where the orientation may stand. libjpeg's own list of saved markers takes quadratic time to grow, which a file of a
// million empty ones turns into hours.
struct Metadata {
  std::vector<std::byte> exif;  // a long one continues in further segments
  std::span<const std::byte> xmp;
};

Metadata metadata_of(std::span<const std::byte> bytes) {
  constexpr std::string_view kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  constexpr unsigned kApp1 = 0xE1, kScan = 0xDA, kEnd = 0xD9;
  Metadata out;
  for (size_t at = 2; at + 4 <= bytes.size();) {
    const auto code = static_cast<unsigned>(bytes[at + 1]);
    if (bytes[at] != std::byte{0xFF} || code == 0xFF || code == 0) {  // filling, or what no marker is
      ++at;
      continue;
    }
    if (code == kScan || code == kEnd) break;
    if (code == 1 || (code >= 0xD0 && code <= 0xD8)) {  // without data
      at += 2;
      continue;
    }
    const size_t n = static_cast<size_t>(bytes[at + 2]) << 8 | static_cast<size_t>(bytes[at + 3]);
    if (n < 2 || n > bytes.size() - at - 2) break;
    const std::span data = bytes.subspan(at + 4, n - 2);
    const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
    if (code == kApp1 && text.starts_with(kExif))
      out.exif.insert(out.exif.end(), data.begin() + kExif.size(), data.end());
    if (code == kApp1 && text.starts_with(kXmp)) out.xmp = data.subspan(kXmp.size());
    at += n + 2;
  }
  return out;
}

}  // namespace

Result<StoredPicture> read_jpeg_header(std::span<const std::byte> bytes) {
  JpegReader reader(bytes);
  TRY(read_header(reader));
  const jpeg_decompress_struct& info = reader.info();
  StoredPicture out;
  out.width = info.image_width;
  out.height = info.image_height;
  // Rows of a few units, before and after upsampling.
  out.decoder_bytes = uint64_t{info.image_width} * 1024 + (1 << 20);
  if (reader.several_scans()) {  // which libjpeg collects as coefficients of 16 bits
    for (int i = 0; i < info.num_components; ++i) {
      const jpeg_component_info& c = info.comp_info[i];
      const auto h = static_cast<uint64_t>(c.h_samp_factor), v = static_cast<uint64_t>(c.v_samp_factor);
      out.decoder_bytes += (c.width_in_blocks + h) * (c.height_in_blocks + v) * DCTSIZE2 * sizeof(JCOEF);
    }
  }
  const Metadata metadata = metadata_of(bytes);
  out.orientation = orientation_of(metadata.exif, metadata.xmp);
  return out;
}

Status decode_jpeg(std::span<const std::byte> bytes, int max_scans, std::span<uint8_t> rgb) {
  JpegReader reader(bytes);
  TRY(read_header(reader));
  std::vector<uint8_t> row(size_t{4} * reader.info().image_width);
  if (!reader.decode(max_scans, rgb.data(), row.data())) return reader.error();
  return {};
}

}  // namespace ibid
