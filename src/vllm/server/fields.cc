#include "vllm/server/fields.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "base/strings.h"

namespace vllm::server {
namespace json = boost::json;
namespace {

// Letters to change, add or drop to make one the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string Nearest(std::string_view name, std::span<const Field> table) {
  if (name.size() > 64) return "";
  size_t best = 3;  // further away it is no slip of the finger
  std::string_view nearest;
  for (const Field& f : table) {
    const size_t d = Distance(name, f.name);
    if (d < best && d < name.size()) {
      best = d;
      nearest = f.name;
    }
  }
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

bool Accepts(std::string_view accepted, const json::value& v) {
  const bool small = !v.is_object() && !v.is_array();
  const std::string text = small || (v.is_array() && v.get_array().size() < 4) ||
                                   (v.is_object() && v.get_object().size() < 4)
                               ? json::serialize(v)
                               : std::string();
  for (const std::string& one : base::Split(accepted, '|')) {
    if (one == "<any>" || (one == "<string>" && v.is_string()) ||
        (one == "<object>" && v.is_object()) || (!text.empty() && one == text)) {
      return true;
    }
    if (v.is_number() && !one.empty() && (std::isdigit(static_cast<unsigned char>(one[0])) != 0)) {
      if (v.to_number<double>() == std::strtod(one.c_str(), nullptr)) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<int64_t> AsInt(const json::value& v) {
  if (v.is_int64()) return v.get_int64();
  if (v.is_double()) {
    const double d = v.get_double();
    if (std::floor(d) == d && std::abs(d) < 9.0e15) return static_cast<int64_t>(d);
  }
  return std::nullopt;
}

Fields::Fields(const json::object& object, std::span<const Field> table, std::string where)
    : object_(object), where_(std::move(where)) {
  for (const auto& kv : object) {
    const std::string_view key(kv.key().data(), kv.key().size());
    const auto f =
        std::find_if(table.begin(), table.end(), [&](const Field& g) { return g.name == key; });
    if (f == table.end()) {
      const std::string name = base::Printable(key);
      error_ = ApiError{};
      error_->message =
          fmt::format("{}{} is no field of this request{}", where_, name, Nearest(key, table));
      error_->param = where_ + name;
      error_->code = "unknown_parameter";
      return;
    }
    if (f->accepted.empty() || kv.value().is_null() || Accepts(f->accepted, kv.value())) continue;
    Fail(key, fmt::format("is not supported{}{}", f->reason.empty() ? "" : ": ", f->reason));
    error_->code = "unsupported_parameter";
    return;
  }
}

const json::value* Fields::Find(std::string_view name) const {
  const json::value* v = object_.if_contains(name);
  return v == nullptr || v->is_null() ? nullptr : v;
}

void Fields::Fail(std::string_view name, std::string_view what) {
  if (error_) return;
  error_ = ApiError{};
  error_->param = where_ + std::string(name);
  error_->message = fmt::format("{} {}", error_->param, what);
}

void Fields::Adopt(const Fields& inner) {
  if (!error_) error_ = inner.error_;
}

void Fields::Bool(std::string_view name, bool* out) {
  const json::value* v = Find(name);
  if (v == nullptr) return;
  if (!v->is_bool()) return Fail(name, "must be true or false");
  *out = v->get_bool();
}

void Fields::Int(std::string_view name, int64_t* out, int64_t low, int64_t high) {
  const json::value* v = Find(name);
  if (v == nullptr) return;
  const std::optional<int64_t> i = AsInt(*v);
  if (!i) {
    if (v->is_uint64() || v->is_double()) {
      return Fail(name, "must be an integer of at most 63 bits, without a fraction");
    }
    return Fail(name, "must be an integer");
  }
  if (*i < low) return Fail(name, fmt::format("must be at least {}, got {}", low, *i));
  if (*i > high) return Fail(name, fmt::format("must be at most {}, got {}", high, *i));
  *out = *i;
}

void Fields::Int(std::string_view name, int32_t* out, int64_t low, int64_t high) {
  int64_t wide = *out;
  Int(name, &wide, low, high);
  *out = static_cast<int32_t>(wide);
}

void Fields::Number(std::string_view name, float* out) {
  const json::value* v = Find(name);
  if (v == nullptr) return;
  if (!v->is_number()) return Fail(name, "must be a number");
  const auto f = static_cast<float>(v->to_number<double>());
  if (!std::isfinite(f)) return Fail(name, "must be a finite number");
  *out = f;
}

void Fields::String(std::string_view name, std::string* out, size_t most_bytes) {
  const json::value* v = Find(name);
  if (v == nullptr) return;
  if (!v->is_string()) return Fail(name, "must be a string");
  if (v->get_string().size() > most_bytes) {
    return Fail(name, fmt::format("has {} bytes; at most {} are taken", v->get_string().size(),
                                  most_bytes));
  }
  *out = std::string(v->get_string());
}

void Fields::Ids(std::string_view name, std::vector<int32_t>* out, size_t most) {
  const json::array* list = Array(name);
  if (list == nullptr) return;
  if (list->size() > most) {
    return Fail(name, fmt::format("has {} entries; at most {} are taken", list->size(), most));
  }
  for (const json::value& v : *list) {
    const std::optional<int64_t> id = AsInt(v);
    if (!id) return Fail(name, "must be a list of token ids (integers)");
    if (*id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      return Fail(name, fmt::format("has {}, which is no token id", *id));
    }
    out->push_back(static_cast<int32_t>(*id));
  }
}

void Fields::Strings(std::string_view name, std::vector<std::string>* out, size_t most,
                     size_t most_bytes, bool or_one) {
  const json::value* v = Find(name);
  if (v == nullptr) return;
  const auto add = [&](const json::value& s) {
    if (!s.is_string()) {
      return Fail(name,
                  or_one ? "must be a string or a list of strings" : "must be a list of strings");
    }
    if (s.get_string().empty()) return Fail(name, "has an empty string");
    if (s.get_string().size() > most_bytes) {
      return Fail(name, fmt::format("has a string of {} bytes; at most {} are taken",
                                    s.get_string().size(), most_bytes));
    }
    out->emplace_back(s.get_string());
  };
  if (or_one && v->is_string()) return add(*v);
  if (!v->is_array()) {
    return Fail(name,
                or_one ? "must be a string or a list of strings" : "must be a list of strings");
  }
  if (v->get_array().size() > most) {
    return Fail(name,
                fmt::format("has {} strings; at most {} are taken", v->get_array().size(), most));
  }
  for (const json::value& s : v->get_array()) {
    add(s);
    if (error_) return;
  }
}

const json::object* Fields::Object(std::string_view name) {
  const json::value* v = Find(name);
  if (v == nullptr) return nullptr;
  if (!v->is_object()) {
    Fail(name, "must be an object");
    return nullptr;
  }
  return &v->get_object();
}

const json::array* Fields::Array(std::string_view name) {
  const json::value* v = Find(name);
  if (v == nullptr) return nullptr;
  if (!v->is_array()) {
    Fail(name, "must be a list");
    return nullptr;
  }
  return &v->get_array();
}

}  // namespace vllm::server
