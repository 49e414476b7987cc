// The tests of `x is ...`.
#include "base/strings.h"
#include "vllm/text/jinja_interpreter.h"

namespace vllm::text::jinja {
namespace {

const Value& Subject(Args& args, size_t more = 0) {
  if (args.positional.size() != 1 + more || !args.named.empty()) {
    Fail("TypeError", fmt::format("a test takes {} argument(s), {} given", more,
                                  args.positional.size() + args.named.size() - 1));
  }
  return args.positional[0];
}

template <Kind kKind>
bool IsKind(Interpreter&, Args& args) {
  return Subject(args).Is(kKind);
}

bool Defined(Interpreter&, Args& args) { return !Subject(args).undefined(); }
bool Integer(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  return v.integer() && !v.Is(Kind::kBool);
}
bool Number(Interpreter&, Args& args) { return Subject(args).number(); }
bool True(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  return v.Is(Kind::kBool) && v.bool_value();
}
bool False(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  return v.Is(Kind::kBool) && !v.bool_value();
}
bool IterableTest(Interpreter&, Args& args) { return Iterable(Subject(args)); }
bool Sequence(Interpreter&, Args& args) {
  switch (Subject(args).kind()) {
    case Kind::kUndefined:  // it has a length, 0, and a subscript, which raises
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kDict:
      return true;
    default:
      return false;
  }
}
bool Callable(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  // The undefined object has a __call__, which raises.
  return v.Is(Kind::kFunction) || v.Is(Kind::kLoop) || v.undefined();
}

Value Remainder(Interpreter& in, const Value& a, const Value& b) {
  return Arithmetic(Op::kMod, a, b, in);
}
bool Odd(Interpreter& in, Args& args) {
  return Equal(Remainder(in, Subject(args), Value::Int(2)), Value::Int(1));
}
bool Even(Interpreter& in, Args& args) {
  return Equal(Remainder(in, Subject(args), Value::Int(2)), Value::Int(0));
}
bool DivisibleBy(Interpreter& in, Args& args) {
  const Value& v = Subject(args, 1);
  return Equal(Remainder(in, v, args.positional[1]), Value::Int(0));
}

bool CaseTest(Interpreter& in, Args& args, std::string_view method) {
  const Value text = ToStr(Subject(args), in.budget());
  bool mutates = false;
  Args none;
  return FindMethod(text, method, mutates)(in, text, none).bool_value();
}
bool UpperTest(Interpreter& in, Args& args) { return CaseTest(in, args, "isupper"); }
bool LowerTest(Interpreter& in, Args& args) { return CaseTest(in, args, "islower"); }

bool SameAs(Interpreter&, Args& args) {
  const Value& a = Subject(args, 1);
  const Value& b = args.positional[1];
  if (a.kind() != b.kind()) return false;
  if (a.none()) return true;
  if (a.Is(Kind::kBool) || a.Is(Kind::kInt)) return a.int_value() == b.int_value();
  if (a.string()) return a.text() == b.text();  // short strings are interned in Python
  return a.identity() != nullptr && a.identity() == b.identity();
}

bool Eq(Interpreter&, Args& args) { return Equal(Subject(args, 1), args.positional[1]); }
bool Ne(Interpreter&, Args& args) { return !Equal(Subject(args, 1), args.positional[1]); }
bool Lt(Interpreter&, Args& args) { return Less(Subject(args, 1), args.positional[1]); }
bool Gt(Interpreter&, Args& args) {
  const Value& a = Subject(args, 1);
  return Less(args.positional[1], a, ">");
}
bool Le(Interpreter&, Args& args) {
  const Value& a = Subject(args, 1);
  return Less(a, args.positional[1], "<=") || Equal(a, args.positional[1]);
}
bool Ge(Interpreter&, Args& args) {
  const Value& a = Subject(args, 1);
  return Less(args.positional[1], a, ">=") || Equal(a, args.positional[1]);
}
bool In(Interpreter& in, Args& args) {
  const Value& a = Subject(args, 1);
  return Contains(args.positional[1], a, in.budget());
}
bool Escaped(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  return v.string() && v.str().markup;
}
bool FilterTest(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  return v.string() && FindFilter(v.text()) != nullptr;
}
bool TestTest(Interpreter&, Args& args) {
  const Value& v = Subject(args);
  return v.string() && FindTest(v.text()) != nullptr;
}

struct Named {
  std::string_view name;
  TestFunction test;
};

constexpr Named kTests[] = {
    {"defined", Defined},
    {"undefined", IsKind<Kind::kUndefined>},
    {"none", IsKind<Kind::kNone>},
    {"string", IsKind<Kind::kString>},
    {"mapping", IsKind<Kind::kDict>},
    {"float", IsKind<Kind::kFloat>},
    {"boolean", IsKind<Kind::kBool>},
    {"number", Number},
    {"integer", Integer},
    {"true", True},
    {"false", False},
    {"iterable", IterableTest},
    {"sequence", Sequence},
    {"callable", Callable},
    {"odd", Odd},
    {"even", Even},
    {"divisibleby", DivisibleBy},
    {"upper", UpperTest},
    {"lower", LowerTest},
    {"sameas", SameAs},
    {"in", In},
    {"eq", Eq},
    {"equalto", Eq},
    {"==", Eq},
    {"ne", Ne},
    {"!=", Ne},
    {"lt", Lt},
    {"lessthan", Lt},
    {"<", Lt},
    {"gt", Gt},
    {"greaterthan", Gt},
    {">", Gt},
    {"le", Le},
    {"<=", Le},
    {"ge", Ge},
    {">=", Ge},
    {"escaped", Escaped},
    {"filter", FilterTest},
    {"test", TestTest},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  for (const Named& t : kTests) {
    if (t.name == name) return t.test;
  }
  return nullptr;
}

}  // namespace vllm::text::jinja
