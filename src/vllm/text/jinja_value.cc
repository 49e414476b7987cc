#include "vllm/text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace json = boost::json;

namespace {

// Deeper values could not be printed or freed without deep recursion; JSON input stops at 64.
constexpr int kMaxDepth = 200;

bool SameOrEqual(const Value& a, const Value& b) {
  if (a.identity() != nullptr && a.identity() == b.identity() && !a.Is(Kind::kFloat)) return true;
  return Equal(a, b);
}

}  // namespace

void Deepen(Object& holder, const Value& held) {
  if (held.identity() == nullptr) return;
  holder.depth = std::max(holder.depth, held.identity()->depth + 1);
  if (holder.depth > kMaxDepth)
    Fail("RecursionError", fmt::format("a value nests deeper than {} levels", kMaxDepth));
}

void Fail(std::string type, std::string message) {
  throw Failure{std::move(type), std::move(message), base::Code::kInvalidArgument, 0, 0};
}

void Budget::OutOfSteps() {
  throw Failure{"LimitError", "the template runs for too long", base::Code::kResourceExhausted, 0,
                0};
}
void Budget::OutOfBytes() {
  throw Failure{"LimitError", "the template builds too much text or too many values",
                base::Code::kResourceExhausted, 0, 0};
}
void Budget::OutOfStack() {
  throw Failure{"LimitError", "the template nests or recurses too deeply",
                base::Code::kResourceExhausted, 0, 0};
}

void FailUndefined(const Value& v) {
  const UndefinedInfo& u = v.as<UndefinedInfo>();
  Fail(u.type, u.message);
}

Value Value::Undefined(std::string message, std::string type) {
  auto u = std::make_shared<UndefinedInfo>();
  u->message = std::move(message);
  u->type = std::move(type);
  return Value(Kind::kUndefined, std::move(u));
}

Value Value::Wide(__int128 i) {
  if (i >= INT64_MIN && i <= INT64_MAX) return Int(static_cast<int64_t>(i));
  auto b = std::make_shared<BigInt>();
  b->value = i;
  return Value(Kind::kBigInt, std::move(b));
}

Value Value::String(std::string text, bool request) {
  auto s = std::make_shared<Str>();
  s->ascii = IsAscii(text);
  if (request && !text.empty()) s->request.push_back({0, text.size()});
  s->text = std::move(text);
  return Value(Kind::kString, std::move(s));
}

__int128 Value::wide() const {
  return kind_ == Kind::kBigInt ? as<BigInt>().value : static_cast<__int128>(int_);
}

double Value::AsDouble() const {
  return kind_ == Kind::kFloat ? float_ : static_cast<double>(wide());
}

const Value* Dict::Find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &items[it->second].second;
  }
  for (const auto& [k, v] : items) {
    if (k.string() && k.text() == key) return &v;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.string()) return Find(key.text());
  for (const auto& [k, v] : items) {
    if (Equal(k, key)) return &v;
  }
  return nullptr;
}

void Dict::Set(Value key, Value value) {
  Deepen(*this, key);
  Deepen(*this, value);
  if (const Value* old = Find(key)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
  constexpr size_t kMany = 12;  // below this a scan is as fast as a hash
  if (items.size() == kMany) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].first.string()) index.emplace(items[i].first.text(), static_cast<uint32_t>(i));
    }
  } else if (items.size() > kMany && items.back().first.string()) {
    index.emplace(items.back().first.text(), static_cast<uint32_t>(items.size() - 1));
  }
}

void StrBuilder::Append(std::string_view text, bool request) {
  if (text.empty()) return;
  budget_->Charge(text.size());
  if (text_.size() + text.size() > budget_->string_bytes) Budget::OutOfBytes();
  if (request) {
    if (!request_.empty() && request_.back().end == text_.size()) {
      request_.back().end += text.size();
    } else {
      request_.push_back({text_.size(), text_.size() + text.size()});
    }
  }
  text_.append(text);
}

void StrBuilder::AppendSlice(const Str& s, size_t begin, size_t end) {
  const size_t base = text_.size();
  Append(std::string_view(s.text).substr(begin, end - begin));
  if (s.request.size() > 8) budget_->Charge(s.request.size() * sizeof(Span));
  for (const Span& span : s.request) {
    const size_t b = std::max(span.begin, begin), e = std::min(span.end, end);
    if (b >= e) continue;
    if (!request_.empty() && request_.back().end == base + b - begin) {
      request_.back().end = base + e - begin;
    } else {
      request_.push_back({base + b - begin, base + e - begin});
    }
  }
}

std::shared_ptr<const Str> StrBuilder::TakeStr() {
  auto s = std::make_shared<Str>();
  budget_->Charge(sizeof(Str));
  s->ascii = IsAscii(text_);
  s->text = std::move(text_);
  s->request = std::move(request_);
  text_.clear();
  request_.clear();
  return s;
}

Value StrBuilder::Take() { return Value::Of(TakeStr()); }

Value MakeSeq(Kind kind, std::vector<Value> items, Budget& budget, std::string repr) {
  budget.Charge(sizeof(Seq) + items.size() * sizeof(Value));
  auto s = std::make_shared<Seq>();
  for (const Value& v : items) Deepen(*s, v);
  s->items = std::move(items);
  s->repr = std::move(repr);
  return Value::Object(kind, std::move(s));
}

Value MakeDict(std::shared_ptr<Dict> dict, Budget& budget) {
  budget.Charge(sizeof(Dict) + dict->items.size() * 3 * sizeof(Value));
  return Value::Object(Kind::kDict, std::move(dict));
}

Value MakeFunction(std::string name, std::function<Value(Interpreter&, Args&)> call) {
  auto f = std::make_shared<Function>();
  f->repr = "<function " + name + ">";
  f->name = std::move(name);
  f->call = std::move(call);
  return Value::Object(Kind::kFunction, std::move(f));
}

Value FromJson(const json::value& v, bool request, Budget& budget) {
  switch (v.kind()) {
    case json::kind::null:
      return Value::None();
    case json::kind::bool_:
      return Value::Bool(v.get_bool());
    case json::kind::int64:
      return Value::Int(v.get_int64());
    case json::kind::uint64:
      return Value::Wide(v.get_uint64());
    case json::kind::double_:
      return Value::Float(v.get_double());
    case json::kind::string: {
      const json::string& s = v.get_string();
      if (!ValidUtf8({s.data(), s.size()}))
        Fail("ValueError", "a string of the request is not valid UTF-8");
      budget.Charge(s.size() + sizeof(Str));
      return Value::String(std::string(s.data(), s.size()), request);
    }
    case json::kind::array: {
      std::vector<Value> items;
      items.reserve(v.get_array().size());
      for (const json::value& e : v.get_array()) items.push_back(FromJson(e, request, budget));
      return MakeSeq(Kind::kList, std::move(items), budget);
    }
    case json::kind::object: {
      auto d = std::make_shared<Dict>();
      for (const auto& kv : v.get_object()) {
        budget.Charge(kv.key().size() + sizeof(Str));
        d->Set(Value::String(std::string(kv.key()), request),
               FromJson(kv.value(), request, budget));
      }
      return MakeDict(std::move(d), budget);
    }
  }
  return Value::None();
}

bool Truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.int_value() != 0;
    case Kind::kBigInt:
      return true;
    case Kind::kFloat:
      return v.float_value() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return !v.as<Seq>().items.empty();
    case Kind::kDict:
      return !v.as<Dict>().items.empty();
    default:
      return true;  // generators, namespaces, functions
  }
}

bool Equal(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    if (a.integer() && b.integer()) return a.wide() == b.wide();
    return a.AsDouble() == b.AsDouble();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      const auto& x = a.as<Seq>().items;
      const auto& y = b.as<Seq>().items;
      return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), SameOrEqual);
    }
    case Kind::kDict: {
      const Dict &x = a.as<Dict>(), &y = b.as<Dict>();
      if (x.items.size() != y.items.size()) return false;
      for (const auto& [k, v] : x.items) {
        const Value* other = y.Find(k);
        if (other == nullptr || !SameOrEqual(v, *other)) return false;
      }
      return true;
    }
    default:
      return a.identity() == b.identity();
  }
}

bool Less(const Value& a, const Value& b, std::string_view op) {
  if (a.number() && b.number()) {
    if (a.integer() && b.integer()) return a.wide() < b.wide();
    return a.AsDouble() < b.AsDouble();
  }
  if (a.undefined()) FailUndefined(a);
  if (b.undefined()) FailUndefined(b);
  if (a.string() && b.string()) return a.text() < b.text();
  if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    const auto& x = a.as<Seq>().items;
    const auto& y = b.as<Seq>().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!SameOrEqual(x[i], y[i])) return Less(x[i], y[i], op);
    }
    return x.size() < y.size();
  }
  Fail("TypeError", fmt::format("'{}' not supported between instances of '{}' and '{}'", op,
                                TypeName(a), TypeName(b)));
}

bool Contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.string()) {
        if (item.undefined()) {
          Fail("TypeError", "'in <string>' requires string as left operand, not Undefined");
        }
        Fail("TypeError",
             fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
      }
      budget.Step(1 + container.text().size() / 64);
      return container.text().find(item.text()) != std::string_view::npos;
    case Kind::kDict:
      if (!Hashable(item)) Fail("TypeError", fmt::format("unhashable type: '{}'", TypeName(item)));
      return container.as<Dict>().Find(item) != nullptr;
    default:
      break;
  }
  const std::shared_ptr<const Seq> items = Items(container, budget);
  budget.Step(1 + items->items.size() / 8);
  for (const Value& v : items->items) {
    if (SameOrEqual(v, item)) return true;
  }
  return false;
}

bool Hashable(const Value& v) {
  if (v.Is(Kind::kTuple)) {
    const auto& items = v.as<Seq>().items;
    return std::all_of(items.begin(), items.end(), Hashable);
  }
  return !v.Is(Kind::kList) && !v.Is(Kind::kDict);
}

const char* TypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.str().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return v.as<Seq>().repr.c_str();
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

std::string ObjectRepr(const Value& v) {
  if (v.none()) return "None";
  if (v.Is(Kind::kNamespace)) return "jinja2.utils.Namespace object";
  if (v.Is(Kind::kLoop)) return "jinja2.runtime.LoopContext object";
  if (v.undefined()) return "jinja2.runtime.Undefined object";
  return fmt::format("{} object", TypeName(v));
}

bool Iterable(const Value& v) {
  return v.sequence() || v.string() || v.Is(Kind::kDict) || v.undefined() || v.Is(Kind::kLoop);
}

std::shared_ptr<const Seq> Items(const Value& v, Budget& budget) {
  switch (v.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return v.shared<Seq>();
    case Kind::kGenerator: {
      const Seq& s = v.as<Seq>();
      if (s.consumed) return std::make_shared<Seq>();
      s.consumed = true;
      return v.shared<Seq>();
    }
    case Kind::kUndefined:
      return std::make_shared<Seq>();
    case Kind::kDict: {
      auto keys = std::make_shared<Seq>();
      budget.Charge(v.as<Dict>().items.size() * sizeof(Value));
      for (const auto& kv : v.as<Dict>().items) keys->items.push_back(kv.first);
      return keys;
    }
    case Kind::kString: {
      auto chars = std::make_shared<Seq>();
      const Str& s = v.str();
      for (size_t i = 0; i < s.text.size();) {
        const size_t begin = i;
        NextChar(s.text, i);
        StrBuilder b(budget);
        b.AppendSlice(s, begin, i);
        budget.Charge(sizeof(Value));
        chars->items.push_back(b.Take());
      }
      return chars;
    }
    default:
      Fail("TypeError", fmt::format("'{}' object is not iterable", TypeName(v)));
  }
}

int64_t Length(const Value& v) {
  switch (v.kind()) {
    case Kind::kString:
      return v.str().ascii ? static_cast<int64_t>(v.text().size()) : CountChars(v.text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return static_cast<int64_t>(v.as<Seq>().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(v.as<Dict>().items.size());
    case Kind::kUndefined:
      return 0;
    default:
      Fail("TypeError", fmt::format("object of type '{}' has no len()", TypeName(v)));
  }
}

}  // namespace vllm::text::jinja
