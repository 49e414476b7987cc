// The global functions of a template: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
#include <algorithm>
#include <ctime>

#include "base/strings.h"
#include "vllm/text/jinja_interpreter.h"

namespace vllm::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox's own limit

Value Range(Interpreter& in, Args& args) {
  if (!args.named.empty()) Fail("TypeError", "range() takes no keyword arguments");
  const auto& p = args.positional;
  if (p.empty() || p.size() > 3)
    Fail("TypeError", fmt::format("range expected 1 to 3 arguments, got {}", p.size()));
  const int64_t start = p.size() > 1 ? AsInt(p[0], "range()") : 0;
  const int64_t stop = AsInt(p[p.size() > 1 ? 1 : 0], "range()");
  const int64_t step = p.size() > 2 ? AsInt(p[2], "range()") : 1;
  if (step == 0) Fail("ValueError", "range() arg 3 must not be zero");
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 n = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (n > kMaxRange) {
    Fail("OverflowError",
         fmt::format("range too big: the sandbox blocks ranges larger than {}", kMaxRange));
  }
  in.budget().Charge(static_cast<uint64_t>(n) * sizeof(Value));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < static_cast<int64_t>(n); ++i)
    items.push_back(Value::Int(start + i * step));
  std::string repr = step == 1 ? fmt::format("range({}, {})", start, stop)
                               : fmt::format("range({}, {}, {})", start, stop, step);
  return MakeSeq(Kind::kRange, std::move(items), in.budget(), std::move(repr));
}

Value MakeDictValue(Interpreter& in, Args& args) {
  auto d = std::make_shared<Dict>();
  if (args.positional.size() > 1) Fail("TypeError", "dict expected at most 1 argument");
  if (!args.positional.empty()) {
    const Value& v = args.positional[0];
    if (v.Is(Kind::kDict)) {
      for (const auto& [k, value] : v.as<Dict>().items) d->Set(k, value);
    } else {
      const auto values = Items(v, in.budget());
      for (const Value& pair : values->items) {
        const auto kv = Items(pair, in.budget());
        if (kv->items.size() != 2) Fail("ValueError", "dict() needs pairs of key and value");
        if (!Hashable(kv->items[0]))
          Fail("TypeError", fmt::format("unhashable type: '{}'", TypeName(kv->items[0])));
        d->Set(kv->items[0], kv->items[1]);
      }
    }
  }
  for (auto& [k, v] : args.named) d->Set(Value::String(k), v);
  return MakeDict(std::move(d), in.budget());
}

Value Cycler(Interpreter& in, Args& args) {
  if (args.positional.empty()) Fail("RuntimeError", "at least one item has to be provided");
  struct State {
    std::vector<Value> items;
    size_t at = 0;
  };
  auto state = std::make_shared<State>();
  state->items = args.positional;
  auto f = std::make_shared<Function>();
  for (const Value& v : state->items) Deepen(*f, v);
  const int depth = f->depth + 1;
  f->name = "cycler";
  f->repr = "<Cycler>";
  f->call = [](Interpreter&, Args&) -> Value {
    Fail("TypeError", "'Cycler' object is not callable");
  };
  f->attribute = [state, depth](std::string_view name) -> Value {
    Value method;
    if (name == "current") return state->items[state->at];
    if (name == "next") {
      method = MakeFunction("next", [state](Interpreter&, Args&) {
        const Value v = state->items[state->at];
        state->at = (state->at + 1) % state->items.size();
        return v;
      });
    } else if (name == "reset") {
      method = MakeFunction("reset", [state](Interpreter&, Args&) {
        state->at = 0;
        return Value::None();
      });
    }
    if (!method.missing()) const_cast<Function&>(method.as<Function>()).depth = depth;
    return method;
  };
  in.budget().Charge(sizeof(Function) + args.positional.size() * sizeof(Value));
  return Value::Object(Kind::kFunction, std::move(f));
}

Value Joiner(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "joiner", {"sep"}, 0);
  const Value separator = a[0].missing() ? Value::String(", ") : a[0];
  auto used = std::make_shared<bool>(false);
  in.budget().Charge(sizeof(Function));
  Value f = MakeFunction("joiner", [separator, used](Interpreter&, Args&) {
    if (*used) return separator;
    *used = true;
    return Value::String("");
  });
  Deepen(const_cast<Function&>(f.as<Function>()), separator);
  return f;
}

Value RaiseException(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "raise_exception", {"message"}, 1);
  Fail("TemplateError", std::string(ToStr(a[0], in.budget()).text()));
}

// The local time, once a rendering. C formats; %f, %z and %Z as Python's naive datetime has them.
Value StrftimeNow(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "strftime_now", {"format"}, 1);
  if (!a[0].string()) Fail("TypeError", "strftime_now() needs a format string");
  const std::string_view given = a[0].text();
  constexpr size_t kMaxFormat = 1000;
  if (given.size() > kMaxFormat)
    Fail("ValueError", fmt::format("a time format over {} characters", kMaxFormat));
  using std::chrono::system_clock;
  const std::time_t seconds =
      system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(in.now()));
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
                          in.now() - std::chrono::floor<std::chrono::seconds>(in.now()))
                          .count();
  std::string format;
  for (size_t i = 0; i < given.size(); ++i) {
    const char next = given[i] == '%' && i + 1 < given.size() ? given[i + 1] : '\0';
    if (next == 'f') {
      format += fmt::format("{:06}", micros);
      ++i;
    } else if (next == 'z' || next == 'Z') {
      ++i;
    } else {
      format += given[i];
      if (next != '\0') format += given[++i];
    }
  }
  std::tm local{};
  localtime_r(&seconds, &local);
  // A mark in front tells an empty result from a buffer that is too small; a conversion gives under
  // 64 bytes.
  format.insert(0, 1, '.');
  std::string buffer(format.size() * 64 + 64, '\0');
  const size_t n = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  if (n == 0) Fail("ValueError", "a time format with too long a result");
  buffer.resize(n);
  in.budget().Charge(n);
  return Value::String(buffer.substr(1));
}

}  // namespace

void BindBuiltins(Interpreter& in) {
  in.Set("range", MakeFunction("range", Range));
  in.Set("dict", MakeFunction("dict", MakeDictValue));
  in.Set("namespace", MakeFunction("namespace", [](Interpreter& i, Args& args) {
           return i.MakeNamespace(args);
         }));
  in.Set("cycler", MakeFunction("cycler", Cycler));
  in.Set("joiner", MakeFunction("joiner", Joiner));
  in.Set("raise_exception", MakeFunction("raise_exception", RaiseException));
  in.Set("strftime_now", MakeFunction("strftime_now", StrftimeNow));
  in.Set("lipsum", MakeFunction("lipsum", [](Interpreter&, Args&) -> Value {
           Fail("TypeError", "lipsum() is random and not supported in a chat template");
         }));
}

std::vector<Value> BindArguments(Args& args, std::string_view function,
                                 std::initializer_list<std::string_view> names, size_t required) {
  std::vector<Value> bound(names.size());
  if (args.positional.size() > names.size()) {
    Fail("TypeError", fmt::format("{}() takes at most {} arguments, {} given", function,
                                  names.size(), args.positional.size()));
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end())
      Fail("TypeError",
           fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    Value& slot = bound[static_cast<size_t>(it - names.begin())];
    if (!slot.missing())
      Fail("TypeError", fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].missing()) {
      Fail("TypeError",
           fmt::format("{}() is missing its argument '{}'", function, names.begin()[i]));
    }
  }
  return bound;
}

int64_t AsInt(const Value& v, std::string_view what) {
  if (v.undefined()) FailUndefined(v);
  if (!v.integer())
    Fail("TypeError", fmt::format("{} needs an integer, not '{}'", what, TypeName(v)));
  if (v.Is(Kind::kBigInt)) Fail("OverflowError", fmt::format("{}: integer too large", what));
  return v.int_value();
}

}  // namespace vllm::text::jinja
