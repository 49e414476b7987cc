#include "vllm/server/multipart.h"

#include <algorithm>
#include <optional>

#include "base/strings.h"

namespace vllm::server {
namespace {

base::Error Bad(std::string what) {
  return {base::Code::kInvalidArgument, "the form " + std::move(what)};
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool SameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

// The parameter `name` behind the first semicolon of a header's value: a token or a quoted string.
std::optional<std::string> Parameter(std::string_view value, std::string_view name) {
  size_t at = value.find(';');
  while (at < value.size()) {
    const size_t equals = value.find('=', at + 1);
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = base::Trimmed(value.substr(at + 1, equals - at - 1));
    std::string text;
    size_t end = equals + 1;
    while (end < value.size() && (value[end] == ' ' || value[end] == '\t')) ++end;
    if (end < value.size() && value[end] == '"') {
      for (++end; end < value.size() && value[end] != '"'; ++end) {
        if (value[end] == '\\' && end + 1 < value.size()) ++end;
        text += value[end];
      }
      if (end == value.size()) return std::nullopt;
      end = value.find(';', end);
    } else {
      const size_t stop = value.find(';', end);
      text = base::Trimmed(value.substr(end, stop == std::string_view::npos ? stop : stop - end));
      end = stop;
    }
    if (SameWord(key, name)) return text;
    at = end;
  }
  return std::nullopt;
}

// The part's header lines, up to the empty one. Takes them off `part`.
base::Result<FormField> ReadHeader(std::string_view& part) {
  FormField field;
  bool named = false;
  while (true) {
    const size_t end = part.find("\r\n");
    if (end == std::string_view::npos) return Bad("has a part whose header does not end");
    const std::string_view line = part.substr(0, end);
    part.remove_prefix(end + 2);
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Bad("has a header line without a colon");
    const std::string_view value = base::Trimmed(line.substr(colon + 1));
    if (!SameWord(base::Trimmed(line.substr(0, colon)), "content-disposition")) continue;
    if (!SameWord(base::Trimmed(value.substr(0, value.find(';'))), "form-data"))
      return Bad("has a part that is no form-data");
    const std::optional<std::string> name = Parameter(value, "name");
    if (!name || named) return Bad("has a part with no name, or several");
    named = true;
    field.name = *name;
    field.is_file = Parameter(value, "filename").has_value();
  }
  if (!named) return Bad("has a part without Content-Disposition");
  return field;
}

}  // namespace

base::Result<std::vector<FormField>> ParseForm(std::string_view content_type,
                                               std::string_view body) {
  const std::optional<std::string> boundary = Parameter(content_type, "boundary");
  if (!SameWord(base::Trimmed(content_type.substr(0, content_type.find(';'))),
                "multipart/form-data"))
    return Bad("must be sent as multipart/form-data");
  if (!boundary || boundary->empty() || boundary->size() > 70)
    return Bad("has no boundary of 1 to 70 characters in Content-Type");
  const std::string first = "--" + *boundary, between = "\r\n" + first;
  if (!body.starts_with(first)) return Bad("does not begin with its boundary");
  body.remove_prefix(first.size());
  std::vector<FormField> fields;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) return Bad("has a boundary that is no line of its own");
    body.remove_prefix(2);
    base::Result<FormField> field = ReadHeader(body);
    if (!field) return field.error();
    const size_t end = body.find(between);
    if (end == std::string_view::npos) return Bad("ends within a part");
    field->data = body.substr(0, end);
    body.remove_prefix(end + between.size());
    if (fields.size() == kMaxFormFields)
      return Bad(fmt::format("has more than {} fields", kMaxFormFields));
    fields.push_back(*std::move(field));
  }
  return fields;
}

}  // namespace vllm::server
