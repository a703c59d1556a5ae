#include "sample/grammar/schema_formats.h"

#include <map>
#include <string>

namespace ibid::grammar {

const char* format_expression(std::string_view format) {
  static const std::map<std::string_view, std::string> known = [] {
    const std::string year = "\\d{4}", leap = "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)";
    const std::string date =
        "(" + year +
        "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" + leap +
        "-02-29)";
    const std::string time = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
    const std::string byte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)", v4 = byte + "(\\." + byte + "){3}",
                      h = "[0-9a-fA-F]{1,4}";
    std::string v6 = "((" + h + ":){7}" + h + "|(" + h + ":){6}" + v4;
    for (int before = 0; before <= 6; ++before) {
      const int after = 6 - before;  // at most, after ::
      v6 += "|" + (before == 0 ? std::string() : h + "(:" + h + "){" + std::to_string(before - 1) + "}") + "::";
      if (after > 0) v6 += "(" + h + "(:" + h + "){0," + std::to_string(after - 1) + "})?";
    }
    v6 += "|(" + h + ":){1,7}:)";
    // At most 62 letters, so that four labels are no longer than 253.
    const std::string label = "([A-Za-z0-9]{1,62}|[A-Za-z0-9]{1,32}-[A-Za-z0-9]{1,29})";
    const std::string host = "(" + label + "(\\." + label + "){0,3})";
    const std::string pct = "%[0-9A-Fa-f]{2}", pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|" + pct + ")";
    const std::string path = "(/" + pchar + "*)*", query = "(\\?(" + pchar + "|[/?])*)?(#(" + pchar + "|[/?])*)?";
    const std::string authority = "//([A-Za-z0-9._~!$&'()*+,;=-]|" + pct + ")*(:\\d{0,5})?" + path;
    const std::string first = "([A-Za-z0-9._~!$&'()*+,;=@-]|" + pct + ")";
    const std::string atext = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
    auto whole = [](const std::string& e) { return "^(" + e + ")$"; };
    return std::map<std::string_view, std::string>{
        {"date", whole(date)},
        {"time", whole(time)},
        {"date-time", whole(date + "T" + time)},
        {"duration", whole("P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|"
                           "\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))")},
        {"email", whole("(" + atext + "{1,64}|" + atext + "{1,22}(\\." + atext + "{1,20}){1,2})@" + host)},
        {"hostname", whole(host)},
        {"ipv4", whole(v4)},
        {"ipv6", whole(v6)},
        {"uuid", whole("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")},
        {"uri", whole("[A-Za-z][A-Za-z0-9+.-]*:(" + authority + "|/(" + pchar + "+" + path + ")?|" + pchar + "+" +
                      path + ")?" + query)},
        {"uri-reference", whole("([A-Za-z][A-Za-z0-9+.-]*:)?(" + authority + "|/(" + pchar + "+" + path + ")?)" +
                                query + "|" + first + "+" + path + query)},
        {"byte", whole("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")},
    };
  }();
  auto at = known.find(format);
  return at == known.end() ? nullptr : at->second.c_str();
}

bool format_is_exact(std::string_view format) {
  return format == "date" || format == "duration" || format == "ipv4" || format == "uuid" || format == "byte";
}

}  // namespace ibid::grammar
