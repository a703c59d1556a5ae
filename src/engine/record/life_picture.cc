// The picture of a Life: time goes right, a row is a choice of the request or one of those beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/record/life.h"

namespace ibid {
namespace {

constexpr double kLeft = 130, kWidth = 840, kTop = 78, kRow = 20, kBar = 14;
constexpr size_t kMaxOthers = 20;

struct Colour {
  const char* fill;
  const char* what;
};
constexpr Colour kWaits = {"#e4e4e7", "waits"}, kPrefill = {"#3b82f6", "prompt"}, kDecode = {"#16a34a", "answer"},
                 kAgain = {"#f59e0b", "computed again"}, kLost = {"#dc2626", "loses its blocks"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

// A round number of seconds that gives some six marks.
double tick_of(double seconds) {
  const double rough = std::max(seconds, 1e-6) / 6, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string text_at(double x, double y, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, escaped(text));
}

}  // namespace

std::string Life::svg() const {
  const double begin = arrived_, seconds = std::max(end() - begin, 1e-6);
  const auto x_of = [&](double at) { return kLeft + kWidth * std::clamp((at - begin) / seconds, 0.0, 1.0); };
  std::string body;
  double y = kTop;
  const auto bar = [&](double from, double to, const char* fill, const std::string& title) {
    body += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>\n",
        x_of(from), y, std::max(0.3, x_of(to) - x_of(from)), kBar, fill, escaped(title));
  };
  // Steps of one kind that follow each other closely are one bar.
  const auto bars = [&](const std::vector<Piece>& pieces) {
    const auto colour = [](const Piece& p) { return p.is_again ? kAgain : p.is_decode ? kDecode : kPrefill; };
    for (size_t i = 0; i < pieces.size();) {
      size_t to = i + 1;
      const char* fill = colour(pieces[i]).fill;
      while (to < pieces.size() && colour(pieces[to]).fill == fill &&
             pieces[to].begin - pieces[to - 1].end < seconds / 2000)
        ++to;
      int32_t n = 0;
      for (size_t k = i; k < to; ++k) n += pieces[k].n_tokens;
      bar(pieces[i].begin, pieces[to - 1].end, fill,
          fmt::format("steps {} to {}: {}, {} tokens", pieces[i].step, pieces[to - 1].step, colour(pieces[i]).what, n));
      i = to;
    }
  };
  const auto of = [](const std::vector<Piece>& all, RequestId request, int32_t choice) {
    std::vector<Piece> out;
    std::ranges::copy_if(all, std::back_inserter(out),
                         [&](const Piece& p) { return p.request == request && p.choice == choice; });
    return out;
  };
  for (int32_t choice = 0; choice < std::max(n_choices_, 1); ++choice) {
    const std::vector<Piece> own = of(pieces_, id_, choice);
    body += text_at(
        kLeft - 8, y + 11,
        fmt::format("request {}{}", static_cast<uint64_t>(id_), n_choices_ > 1 ? fmt::format(".{}", choice) : ""),
        " text-anchor=\"end\" font-weight=\"bold\"");
    bar(begin, own.empty() ? begin + seconds : own.back().end, kWaits.fill, kWaits.what);
    bars(own);
    for (const Mark& mark : marks_) {
      if (mark.choice == choice && mark.what.find("loses") != std::string::npos)
        bar(mark.at, mark.at + seconds / 300, kLost.fill, mark.what);
    }
    y += kRow;
  }
  y += kRow / 2;
  std::set<std::pair<RequestId, int32_t>> others;
  for (const Piece& piece : company_) {
    if (others.size() < kMaxOthers + 1) others.emplace(piece.request, piece.choice);
  }
  size_t n_shown = 0;
  for (const auto& [request, choice] : others) {
    if (++n_shown > kMaxOthers) {
      body += text_at(kLeft - 8, y + 11, "and others", " text-anchor=\"end\" fill=\"#71717a\"");
      y += kRow;
      break;
    }
    body += text_at(kLeft - 8, y + 11,
                    fmt::format("{}{}", static_cast<uint64_t>(request), choice > 0 ? fmt::format(".{}", choice) : ""),
                    " text-anchor=\"end\" fill=\"#71717a\"");
    bars(of(company_, request, choice));
    y += kRow;
  }
  std::string axis;
  const double tick = tick_of(seconds);
  for (int i = 0; i * tick <= seconds; ++i) {
    const double x = x_of(begin + i * tick);
    axis += fmt::format("<path d=\"M{:.1f} {} V{:.1f}\" stroke=\"#d4d4d8\"/>\n", x, kTop - 6, y);
    axis += text_at(x, kTop - 10, fmt::format("{:.6g} s", i * tick), " text-anchor=\"middle\" fill=\"#71717a\"");
  }
  std::string legend;
  double x = kLeft;
  for (const Colour& colour : {kWaits, kPrefill, kDecode, kAgain, kLost}) {
    legend += fmt::format("<rect x=\"{}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, colour.fill);
    legend += text_at(x + 17, 42, colour.what);
    x += 40 + 7.0 * static_cast<double>(std::string_view(colour.what).size());
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"{0:.0f}\" viewBox=\"0 0 1000 {0:.0f}\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"1000\" height=\"{0:.0f}\" fill=\"#fff\"/>\n",
             y + 12) +
         text_at(14, 20, heading_, " font-size=\"13\"") + legend + axis + body + "</svg>\n";
}

}  // namespace ibid
