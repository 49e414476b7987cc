// The filters that work on sequences and choose among them; text filters are in
// jinja_text_filters.cc.
#include "vllm/text/jinja_filters.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace {

// "a.0.b": a path of attributes and indices. None: the item itself.
std::vector<Value> AttributePath(const Value& attribute) {
  if (attribute.missing() || attribute.none()) return {};
  if (!attribute.string()) return {attribute};
  std::vector<Value> parts;
  for (const std::string& p : base::Split(attribute.text(), '.')) {
    const bool digits =
        !p.empty() && p.size() < 10 && p.find_first_not_of("0123456789") == std::string::npos;
    parts.push_back(digits ? Value::Int(std::stol(p)) : Value::String(p));
  }
  return parts;
}

Value Follow(Interpreter& in, Value item, const std::vector<Value>& path,
             const Value& fallback = {}) {
  for (const Value& p : path) {
    item = in.GetItem(item, p);
    if (!fallback.missing() && !fallback.none() && item.undefined()) item = fallback;
  }
  return item;
}

Value IgnoreCase(const Value& v, bool case_sensitive) {
  return !case_sensitive && v.string() ? Value::String(Lower(v.text())) : v;
}

Value List(Interpreter& in, std::vector<Value> items) {
  return MakeSeq(Kind::kList, std::move(items), in.budget());
}
Value Generator(Interpreter& in, std::vector<Value> items) {
  return MakeSeq(Kind::kGenerator, std::move(items), in.budget());
}

Value ListFilter(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "list", {"value"}, 1);
  return List(in, Items(a[0], in.budget())->items);
}

Value LengthFilter(Interpreter&, Args& args) {
  const std::vector<Value> a = BindArguments(args, "length", {"value"}, 1);
  return Value::Int(Length(a[0]));
}

Value ItemsFilter(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "items", {"value"}, 1);
  std::vector<Value> pairs;
  if (!a[0].undefined()) {
    if (!a[0].Is(Kind::kDict)) Fail("TypeError", "Can only get item pairs from a mapping.");
    for (const auto& [k, v] : a[0].as<Dict>().items)
      pairs.push_back(MakeSeq(Kind::kTuple, {k, v}, in.budget()));
  }
  return Generator(in, std::move(pairs));
}

Value First(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "first", {"value"}, 1);
  if (a[0].string() && !a[0].text().empty()) return Index(a[0], 0, in.budget());
  const auto items = Items(a[0], in.budget());
  return items->items.empty() ? Value::Undefined("No first item, sequence was empty.")
                              : items->items.front();
}

Value Last(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "last", {"value"}, 1);
  if (a[0].Is(Kind::kGenerator)) Fail("TypeError", "'generator' object is not reversible");
  if (a[0].string() && !a[0].text().empty()) return Index(a[0], -1, in.budget());
  const auto items = Items(a[0], in.budget());
  return items->items.empty() ? Value::Undefined("No last item, sequence was empty.")
                              : items->items.back();
}

Value Reverse(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "reverse", {"value"}, 1);
  if (a[0].string()) return Slice(a[0], Value::None(), Value::None(), Value::Int(-1), in.budget());
  if (a[0].undefined()) return List(in, {});
  std::vector<Value> items = Items(a[0], in.budget())->items;
  std::reverse(items.begin(), items.end());
  return Generator(in, std::move(items));
}

Value Join(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "join", {"value", "d", "attribute"}, 1);
  const auto items = Items(a[0], in.budget());
  const std::vector<Value> path = AttributePath(a[2]);
  const Value separator = a[1].missing() ? Value::String("") : ToStr(a[1], in.budget());
  StrBuilder out(in.budget());
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (i > 0) out.Append(separator.str());
    AppendStr(Follow(in, items->items[i], path), out);
  }
  return out.Take();
}

Value Map(Interpreter& in, Args& args) {
  const Value value = args.positional[0];
  if (!Truthy(value)) return Generator(in, {});
  const auto items = Items(value, in.budget());
  std::vector<Value> out;
  out.reserve(items->items.size());
  if (args.positional.size() == 1 && !args.named.empty()) {
    const std::vector<Value> a = BindArguments(args, "map", {"value", "attribute", "default"}, 1);
    if (a[1].missing()) Fail("FilterArgumentError", "map requires a filter argument");
    const std::vector<Value> path = AttributePath(a[1]);
    for (const Value& item : items->items) {
      in.budget().Step();
      out.push_back(Follow(in, item, path, a[2]));
    }
    return Generator(in, std::move(out));
  }
  if (args.positional.size() < 2) Fail("FilterArgumentError", "map requires a filter argument");
  const std::string name(ToStr(args.positional[1], in.budget()).text());
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) Fail("TemplateRuntimeError", "no filter named '" + name + "'");
  for (const Value& item : items->items) {
    in.budget().Step();
    Args inner;
    inner.positional.assign(args.positional.begin() + 1, args.positional.end());
    inner.positional[0] = item;
    inner.named = args.named;
    out.push_back(filter(in, inner));
  }
  return Generator(in, std::move(out));
}

// select, reject, selectattr, rejectattr.
Value Choose(Interpreter& in, Args& args, bool keep, bool by_attribute) {
  const Value value = args.positional[0];
  if (!Truthy(value)) return Generator(in, {});
  const auto items = Items(value, in.budget());
  size_t at = 1;
  std::vector<Value> path;
  if (by_attribute) {
    if (args.positional.size() < 2)
      Fail("FilterArgumentError", "Missing parameter for attribute name");
    path = AttributePath(args.positional[at++]);
  }
  TestFunction test = nullptr;
  if (at < args.positional.size()) {
    const std::string name(ToStr(args.positional[at], in.budget()).text());
    test = FindTest(name);
    if (test == nullptr) Fail("TemplateRuntimeError", "no test named '" + name + "'");
  }
  std::vector<Value> out;
  for (const Value& item : items->items) {
    in.budget().Step();
    const Value subject = Follow(in, item, path);
    bool holds;
    if (test == nullptr) {
      holds = Truthy(subject);
    } else {
      Args inner;
      inner.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(at),
                              args.positional.end());
      inner.positional[0] = subject;
      inner.named = args.named;
      holds = test(in, inner);
    }
    if (holds == keep) out.push_back(item);
  }
  return Generator(in, std::move(out));
}

Value Select(Interpreter& in, Args& args) { return Choose(in, args, true, false); }
Value Reject(Interpreter& in, Args& args) { return Choose(in, args, false, false); }
Value SelectAttr(Interpreter& in, Args& args) { return Choose(in, args, true, true); }
Value RejectAttr(Interpreter& in, Args& args) { return Choose(in, args, false, true); }

// Stable sort by key. Comparisons cost steps, since keys can be long.
void SortByKey(Interpreter& in, std::vector<std::pair<std::vector<Value>, Value>>& keyed,
               bool reverse) {
  const auto less = [&in](const auto& a, const auto& b) {
    in.budget().Step();
    for (size_t i = 0; i < a.first.size(); ++i) {
      if (!Equal(a.first[i], b.first[i])) return Less(a.first[i], b.first[i]);
    }
    return false;
  };
  if (reverse) {
    std::stable_sort(keyed.begin(), keyed.end(),
                     [&](const auto& a, const auto& b) { return less(b, a); });
  } else {
    std::stable_sort(keyed.begin(), keyed.end(), less);
  }
}

Value Sort(Interpreter& in, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "sort", {"value", "reverse", "case_sensitive", "attribute"}, 1);
  std::vector<std::vector<Value>> paths;
  if (a[3].string()) {
    for (const std::string& p : base::Split(a[3].text(), ','))
      paths.push_back(AttributePath(Value::String(p)));
  } else {
    paths.push_back(AttributePath(a[3]));
  }
  std::vector<std::pair<std::vector<Value>, Value>> keyed;
  const auto values = Items(a[0], in.budget());
  for (const Value& item : values->items) {
    std::vector<Value> key;
    for (const auto& p : paths) key.push_back(IgnoreCase(Follow(in, item, p), Truthy(a[2])));
    keyed.emplace_back(std::move(key), item);
  }
  SortByKey(in, keyed, Truthy(a[1]));
  std::vector<Value> out;
  for (auto& k : keyed) out.push_back(std::move(k.second));
  return List(in, std::move(out));
}

Value DictSort(Interpreter& in, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "dictsort", {"value", "case_sensitive", "by", "reverse"}, 1);
  bool by_value = false;
  if (!a[2].missing()) {
    const Value by = ToStr(a[2], in.budget());
    if (by.text() != "key" && by.text() != "value") {
      Fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    by_value = by.text() == "value";
  }
  if (a[0].undefined()) FailUndefined(a[0]);
  if (!a[0].Is(Kind::kDict))
    Fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", TypeName(a[0])));
  std::vector<std::pair<std::vector<Value>, Value>> keyed;
  for (const auto& [k, v] : a[0].as<Dict>().items) {
    std::vector<Value> key{IgnoreCase(by_value ? v : k, Truthy(a[1]))};
    keyed.emplace_back(std::move(key), MakeSeq(Kind::kTuple, {k, v}, in.budget()));
  }
  SortByKey(in, keyed, Truthy(a[3]));
  std::vector<Value> out;
  for (auto& k : keyed) out.push_back(std::move(k.second));
  return List(in, std::move(out));
}

Value Unique(Interpreter& in, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "unique", {"value", "case_sensitive", "attribute"}, 1);
  const std::vector<Value> path = AttributePath(a[2]);
  Dict seen;
  std::vector<Value> out;
  const auto values = Items(a[0], in.budget());
  for (const Value& item : values->items) {
    const Value key = IgnoreCase(Follow(in, item, path), Truthy(a[1]));
    if (!Hashable(key)) Fail("TypeError", fmt::format("unhashable type: '{}'", TypeName(key)));
    in.budget().Step(1 + (key.string() ? 0 : seen.items.size() / 8));
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, Value::None());
    out.push_back(item);
  }
  return Generator(in, std::move(out));
}

Value GroupBy(Interpreter& in, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "groupby", {"value", "attribute", "default", "case_sensitive"}, 2);
  const std::vector<Value> path = AttributePath(a[1]);
  std::vector<std::pair<std::vector<Value>, Value>> keyed;
  const auto values = Items(a[0], in.budget());
  for (const Value& item : values->items) {
    std::vector<Value> key{IgnoreCase(Follow(in, item, path, a[2]), Truthy(a[3]))};
    keyed.emplace_back(std::move(key), item);
  }
  SortByKey(in, keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < keyed.size() && Equal(keyed[i].first[0], keyed[first].first[0]); ++i)
      members.push_back(keyed[i].second);
    // The first member's own spelling names the group.
    const Value grouper = Follow(in, keyed[first].second, path, a[2]);
    const Value list = List(in, std::move(members));
    groups.push_back(MakeSeq(Kind::kTuple, {grouper, list}, in.budget(), std::string(kGroup)));
  }
  return List(in, std::move(groups));
}

Value MinMax(Interpreter& in, Args& args, bool max) {
  const std::vector<Value> a =
      BindArguments(args, max ? "max" : "min", {"value", "case_sensitive", "attribute"}, 1);
  const std::vector<Value> path = AttributePath(a[2]);
  const auto items = Items(a[0], in.budget());
  if (items->items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items->items) {
    in.budget().Step();
    Value key = IgnoreCase(Follow(in, item, path), Truthy(a[1]));
    if (best == nullptr || (max ? Less(best_key, key, ">") : Less(key, best_key))) {
      best = &item;
      best_key = std::move(key);
    }
  }
  return *best;
}
Value Min(Interpreter& in, Args& args) { return MinMax(in, args, false); }
Value Max(Interpreter& in, Args& args) { return MinMax(in, args, true); }

Value Sum(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "sum", {"iterable", "attribute", "start"}, 1);
  const std::vector<Value> path = AttributePath(a[1]);
  Value total = a[2].missing() ? Value::Int(0) : a[2];
  const auto values = Items(a[0], in.budget());
  for (const Value& item : values->items) {
    in.budget().Step();
    total = Arithmetic(Op::kAdd, total, Follow(in, item, path), in);
  }
  return total;
}

Value Batch(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "batch", {"value", "linecount", "fill_with"}, 2);
  const int64_t n = AsInt(a[1], "batch()");
  std::vector<Value> rows, row;
  const auto values = Items(a[0], in.budget());
  for (const Value& item : values->items) {
    if (static_cast<int64_t>(row.size()) == n) {
      rows.push_back(List(in, std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (!a[2].missing() && !a[2].none() && static_cast<int64_t>(row.size()) < n) {
      in.budget().Charge(static_cast<uint64_t>(n) * sizeof(Value));
      row.resize(static_cast<size_t>(n), a[2]);
    }
    rows.push_back(List(in, std::move(row)));
  }
  return Generator(in, std::move(rows));
}

Value SliceFilter(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "slice", {"value", "slices", "fill_with"}, 2);
  const auto items = Items(a[0], in.budget());
  const int64_t n = AsInt(a[1], "slice()"), size = static_cast<int64_t>(items->items.size());
  if (n == 0) Fail("ZeroDivisionError", "integer division or modulo by zero");
  std::vector<Value> columns;
  int64_t begin = 0;
  for (int64_t i = 0; i < n; ++i) {
    in.budget().Step();
    const int64_t count = size / n + (i < size % n ? 1 : 0);
    std::vector<Value> column(items->items.begin() + begin, items->items.begin() + begin + count);
    begin += count;
    if (!a[2].missing() && !a[2].none() && i >= size % n) column.push_back(a[2]);
    columns.push_back(List(in, std::move(column)));
  }
  return Generator(in, std::move(columns));
}

Value Default(Interpreter&, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "default", {"value", "default_value", "boolean"}, 1);
  const bool replace = a[0].undefined() || (Truthy(a[2]) && !Truthy(a[0]));
  if (!replace) return a[0];
  return a[1].missing() ? Value::String("") : a[1];
}

Value Attr(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "attr", {"obj", "name"}, 2);
  const Value name = ToStr(a[1], in.budget());
  bool mutates = false;
  // Attributes alone, never keys.
  if (a[0].Is(Kind::kDict) && FindMethod(a[0], name.text(), mutates) == nullptr && !mutates) {
    return Value::Undefined(
        fmt::format("'{}' has no attribute '{}'", ObjectRepr(a[0]), name.text()));
  }
  return in.GetAttribute(a[0], name.text());
}

Value Abs(Interpreter&, Args& args) {
  const std::vector<Value> a = BindArguments(args, "abs", {"value"}, 1);
  if (a[0].undefined()) FailUndefined(a[0]);
  if (a[0].Is(Kind::kFloat)) return Value::Float(std::fabs(a[0].float_value()));
  if (!a[0].integer())
    Fail("TypeError", fmt::format("bad operand type for abs(): '{}'", TypeName(a[0])));
  const __int128 w = a[0].wide();
  return Value::Wide(w < 0 ? -w : w);
}

// Round half to even on the decimal digits, as Python does: through text, so that 2.675 stays what
// it prints as.
double RoundHalfEven(double d, int digits) {
  if (std::isnan(d) || std::isinf(d)) return d;
  if (digits > 300) return d;
  if (digits >= 0) {
    char buffer[720];
    std::snprintf(buffer, sizeof(buffer), "%.*f", digits, d);
    return std::strtod(buffer, nullptr);
  }
  if (digits < -308) return 0;
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(d / unit) * unit;
}

Value Round(Interpreter&, Args& args) {
  const std::vector<Value> a = BindArguments(args, "round", {"value", "precision", "method"}, 1);
  const int64_t precision =
      a[1].missing() ? 0 : std::clamp<int64_t>(AsInt(a[1], "round()"), -400, 400);
  const std::string_view method = a[2].missing() ? "common" : a[2].string() ? a[2].text() : "";
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail("FilterArgumentError", "method must be common, ceil or floor");
  }
  if (a[0].undefined()) FailUndefined(a[0]);
  if (!a[0].number())
    Fail("TypeError", fmt::format("type {} doesn't define __round__ method", TypeName(a[0])));
  if (method == "common") {
    if (a[0].integer()) {
      if (precision >= 0) return Value::Wide(a[0].wide());
      return Value::Wide(
          static_cast<__int128>(RoundHalfEven(a[0].AsDouble(), static_cast<int>(precision))));
    }
    return Value::Float(RoundHalfEven(a[0].float_value(), static_cast<int>(precision)));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = a[0].AsDouble() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value Random(Interpreter&, Args&) {
  Fail("TypeError", "filter 'random' is not supported: a prompt must be the same each time");
}

struct Named {
  std::string_view name;
  FilterFunction filter;
};

constexpr Named kFilters[] = {
    {"length", LengthFilter},
    {"count", LengthFilter},
    {"list", ListFilter},
    {"items", ItemsFilter},
    {"default", Default},
    {"d", Default},
    {"first", First},
    {"last", Last},
    {"reverse", Reverse},
    {"join", Join},
    {"map", Map},
    {"select", Select},
    {"reject", Reject},
    {"selectattr", SelectAttr},
    {"rejectattr", RejectAttr},
    {"sort", Sort},
    {"dictsort", DictSort},
    {"unique", Unique},
    {"groupby", GroupBy},
    {"min", Min},
    {"max", Max},
    {"sum", Sum},
    {"batch", Batch},
    {"slice", SliceFilter},
    {"attr", Attr},
    {"abs", Abs},
    {"round", Round},
    {"random", Random},
};

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  for (const Named& f : kFilters) {
    if (f.name == name) return f.filter;
  }
  return FindTextFilter(name);
}

}  // namespace vllm::text::jinja
