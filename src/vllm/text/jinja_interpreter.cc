#include "vllm/text/jinja_interpreter.h"

#include <algorithm>
#include <deque>

#include "base/strings.h"

namespace vllm::text::jinja {
namespace {

// Python stops near a thousand frames, three of them a macro call.
constexpr int kMaxMacroDepth = 200;

// The `loop` of a for body. Items are pulled one by one, since the loop's filter may depend on what
// the body did.
struct Loop : Object {
  std::function<bool(Value&)> pull;  // empty once the loop has ended
  mutable std::deque<Value> ahead;   // pulled early, for last, nextitem and length
  int64_t index0 = -1;
  int64_t length = -1;  // known without pulling, or -1
  int64_t depth0 = 0;
  Value before, current;
  mutable std::vector<Value> changed;
  mutable bool changed_before = false;

  bool Next(Value& v) {
    if (!ahead.empty()) {
      v = std::move(ahead.front());
      ahead.pop_front();
    } else if (!pull || !pull(v)) {
      return false;
    }
    ++index0;
    before = std::move(current);
    current = v;
    return true;
  }
  const Value* Peek() const {
    if (ahead.empty()) {
      Value v;
      if (!pull || !pull(v)) return nullptr;
      ahead.push_back(std::move(v));
    }
    return &ahead.front();
  }
  int64_t Length() const {
    if (length >= 0) return length;
    Value v;
    while (pull && pull(v)) ahead.push_back(std::move(v));
    return index0 + 1 + static_cast<int64_t>(ahead.size());
  }
};

Value Cycle(const Loop& loop, Args& args) {
  if (args.positional.empty()) Fail("TypeError", "no items for cycling given");
  return args.positional[static_cast<size_t>(loop.index0) % args.positional.size()];
}

Value Changed(const Loop& loop, Args& args) {
  const bool same =
      loop.changed_before && loop.changed.size() == args.positional.size() &&
      std::equal(loop.changed.begin(), loop.changed.end(), args.positional.begin(), Equal);
  if (loop.pull) {  // a loop that ended is frozen, so that it cannot come to hold itself
    loop.changed_before = true;
    loop.changed = args.positional;
  }
  return Value::Bool(!same);
}

Value LoopAttribute(const Value& object, std::string_view name) {
  const Loop& loop = object.as<Loop>();
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.Peek() == nullptr);
  if (name == "length") return Value::Int(loop.Length());
  if (name == "revindex") return Value::Int(loop.Length() - loop.index0);
  if (name == "revindex0") return Value::Int(loop.Length() - loop.index0 - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 ? Value::Undefined("there is no previous item") : loop.before;
  }
  if (name == "nextitem") {
    const Value* next = loop.Peek();
    return next == nullptr ? Value::Undefined("there is no next item") : *next;
  }
  if (name == "cycle" || name == "changed") {
    const auto call = name == "cycle" ? Cycle : Changed;
    auto held = object.shared<Loop>();
    Value f = MakeFunction(std::string(name),
                           [held, call](Interpreter&, Args& args) { return call(*held, args); });
    Deepen(const_cast<Function&>(f.as<Function>()), object);
    return f;
  }
  return {};
}

}  // namespace

// A frame for as long as a body runs; kept by the interpreter where a macro was made in it.
class Interpreter::Scope {
 public:
  Scope(Interpreter& in, Frame* parent) : in_(in), frame_(std::make_unique<Frame>()) {
    frame_->parent = parent;
  }
  ~Scope() { Release(); }
  Frame* get() { return frame_.get(); }
  // Ready for the next iteration of a loop.
  void Renew() {
    if (!frame_->captured) {
      frame_->variables.clear();
      return;
    }
    Frame* parent = frame_->parent;
    Release();
    frame_ = std::make_unique<Frame>();
    frame_->parent = parent;
  }

 private:
  void Release() {
    if (frame_->captured) in_.kept_.push_back(std::move(frame_));
  }
  Interpreter& in_;
  std::unique_ptr<Frame> frame_;
};

Interpreter::Interpreter(const Template& t, std::chrono::system_clock::time_point now,
                         Budget budget)
    : template_(t), now_(now), budget_(budget), globals_(t.names.size()) {
  budget_.stack_base = static_cast<const char*>(__builtin_frame_address(0));
  loop_name_ = t.NameIndex("loop");
  caller_name_ = t.NameIndex("caller");
  varargs_name_ = t.NameIndex("varargs");
  kwargs_name_ = t.NameIndex("kwargs");
  BindBuiltins(*this);
}

Interpreter::~Interpreter() {
  // Namespaces are the only values that can hold themselves.
  for (const auto& n : namespaces_) {
    std::vector<std::pair<std::string, Value>> last;
    last.swap(n->attributes);
  }
}

void Interpreter::Set(std::string_view name, Value value) {
  const int i = template_.NameIndex(name);
  if (i >= 0) globals_[static_cast<size_t>(i)] = std::move(value);
}

std::shared_ptr<const Str> Interpreter::Run() {
  try {
    StrBuilder out(budget_);
    Exec(template_.body, nullptr, out);
    return out.TakeStr();
  } catch (Failure& f) {
    if (f.line == 0) {
      f.line = line_;
      f.column = column_;
    }
    throw;
  }
}

// ---- statements

Interpreter::Flow Interpreter::Exec(const Body& body, Frame* frame, StrBuilder& out) {
  budget_.CheckStack();
  for (const auto& s : body) {
    if (s->kind == Stmt::Kind::kData) {
      out.Append(s->data);
      continue;
    }
    const Flow flow = ExecOne(*s, frame, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecOne(const Stmt& s, Frame* frame, StrBuilder& out) {
  budget_.Step();
  line_ = s.line;
  column_ = s.column;
  switch (s.kind) {
    case Stmt::Kind::kData:
      out.Append(s.data);
      break;
    case Stmt::Kind::kPrint:
      AppendStr(Eval(*s.expr, frame), out);
      break;
    case Stmt::Kind::kIf:
      for (const auto& [condition, body] : s.branches) {
        if (Truthy(Eval(*condition, frame))) return Exec(body, frame, out);
      }
      return Exec(s.otherwise, frame, out);
    case Stmt::Kind::kFor:
      return ExecFor(s, frame, out);
    case Stmt::Kind::kSet:
      Assign(s.target, Eval(*s.expr, frame), frame);
      break;
    case Stmt::Kind::kSetBlock: {
      Scope scope(*this, frame);
      StrBuilder captured(budget_);
      const Flow flow = Exec(s.body, scope.get(), captured);
      if (flow != Flow::kNormal) return flow;
      Assign(s.target, Filtered(s.expr.get(), frame, captured.Take()), frame);
      break;
    }
    case Stmt::Kind::kMacro:
      Bind(s.name, MakeMacro(s, frame), frame);
      break;
    case Stmt::Kind::kCallBlock:
      ExecCallBlock(s, frame, out);
      break;
    case Stmt::Kind::kFilterBlock: {
      Scope scope(*this, frame);
      StrBuilder captured(budget_);
      const Flow flow = Exec(s.body, scope.get(), captured);
      if (flow != Flow::kNormal) return flow;
      AppendStr(Filtered(s.expr.get(), frame, captured.Take()), out);
      break;
    }
    case Stmt::Kind::kWith: {
      Scope scope(*this, frame);
      std::vector<Value> values;
      for (const auto& b : s.bindings) values.push_back(Eval(*b.second, frame));
      for (size_t i = 0; i < values.size(); ++i)
        Assign(s.bindings[i].first, std::move(values[i]), scope.get());
      return Exec(s.body, scope.get(), out);
    }
    case Stmt::Kind::kScope: {
      Scope scope(*this, frame);
      return Exec(s.body, scope.get(), out);
    }
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecFor(const Stmt& s, Frame* frame, StrBuilder& out) {
  std::shared_ptr<const Seq> items = Items(Eval(*s.expr, frame), budget_);
  Scope scope(*this, frame), filter_scope(*this, frame);
  size_t next = 0;
  auto loop = std::make_shared<Loop>();
  loop->depth = items->depth + 1;
  if (s.condition == nullptr) loop->length = static_cast<int64_t>(items->items.size());
  loop->pull = [&, items](Value& v) {
    while (next < items->items.size()) {
      budget_.Step();
      const Value& item = items->items[next++];
      if (s.condition != nullptr) {
        filter_scope.Renew();
        Assign(s.target, item, filter_scope.get());
        if (!Truthy(Eval(*s.condition, filter_scope.get()))) continue;
      }
      v = item;
      return true;
    }
    return false;
  };
  // The lambda refers to this call: whoever kept the loop object finds it at its end.
  struct End {
    Loop& loop;
    ~End() {
      loop.pull = nullptr;
      loop.changed.clear();
    }
  } end{*loop};

  Value item;
  bool any = false;
  while (loop->Next(item)) {
    any = true;
    scope.Renew();
    if (loop_name_ >= 0) Bind(loop_name_, Value::Object(Kind::kLoop, loop), scope.get());
    Assign(s.target, std::move(item), scope.get());
    if (Exec(s.body, scope.get(), out) == Flow::kBreak) break;
  }
  if (any || s.otherwise.empty()) return Flow::kNormal;
  return Exec(s.otherwise, frame, out);
}

Value Interpreter::MakeMacro(const Stmt& s, Frame* frame) {
  for (Frame* f = frame; f != nullptr && !f->captured; f = f->parent) f->captured = true;
  budget_.Charge(sizeof(Function) + (frame == nullptr ? 0 : sizeof(Frame) + 64));
  const std::string name = s.name < 0 ? "caller" : template_.names[static_cast<size_t>(s.name)];
  Value macro = MakeFunction(
      name, [&s, frame](Interpreter& in, Args& args) { return in.CallMacro(s, frame, args); });
  const_cast<Function&>(macro.as<Function>()).repr =
      s.name < 0 ? "<Macro anonymous>" : "<Macro '" + name + "'>";
  return macro;
}

void Interpreter::ExecCallBlock(const Stmt& s, Frame* frame, StrBuilder& out) {
  Value callee = Eval(*s.expr->operands[0], frame);
  Args args;
  EvalArguments(*s.expr, 1, frame, args);
  args.named.emplace_back("caller", MakeMacro(s, frame));
  AppendStr(Call(callee, args), out);
}

Value Interpreter::CallMacro(const Stmt& s, Frame* closure, Args& args) {
  if (++macro_depth_ > kMaxMacroDepth) Budget::OutOfStack();
  Scope scope(*this, closure);
  const auto& parameters = s.signature.parameters;
  const size_t first_default = parameters.size() - s.signature.defaults.size();
  const std::string name =
      s.name < 0 ? "None" : "'" + template_.names[static_cast<size_t>(s.name)] + "'";
  bool caller_is_parameter = false;
  std::vector<Value> given(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& parameter = template_.names[static_cast<size_t>(parameters[i])];
    caller_is_parameter |= parameter == "caller";
    if (i < args.positional.size()) {
      given[i] = args.positional[i];
      continue;
    }
    const auto it = std::find_if(args.named.begin(), args.named.end(),
                                 [&](auto& n) { return n.first == parameter; });
    if (it != args.named.end()) {
      given[i] = std::move(it->second);
      args.named.erase(it);
    }
  }
  const auto is_parameter = [&](int n) {
    return std::find(parameters.begin(), parameters.end(), n) != parameters.end();
  };
  if (s.uses_caller && !caller_is_parameter) {
    const auto it = std::find_if(args.named.begin(), args.named.end(),
                                 [](auto& n) { return n.first == "caller"; });
    Value caller = it == args.named.end() ? Value::Undefined("No caller defined") : it->second;
    if (it != args.named.end()) args.named.erase(it);
    Bind(caller_name_, std::move(caller), scope.get());
  }
  if (s.uses_kwargs && !is_parameter(kwargs_name_)) {
    auto d = std::make_shared<Dict>();
    for (auto& [k, v] : args.named) d->Set(Value::String(k), std::move(v));
    Bind(kwargs_name_, MakeDict(std::move(d), budget_), scope.get());
  } else if (!args.named.empty()) {
    Fail("TypeError",
         fmt::format("macro {} takes no keyword argument '{}'", name, args.named[0].first));
  }
  if (s.uses_varargs && !is_parameter(varargs_name_)) {
    std::vector<Value> rest;
    for (size_t i = parameters.size(); i < args.positional.size(); ++i)
      rest.push_back(args.positional[i]);
    Bind(varargs_name_, MakeSeq(Kind::kTuple, std::move(rest), budget_), scope.get());
  } else if (args.positional.size() > parameters.size()) {
    Fail("TypeError",
         fmt::format("macro {} takes not more than {} argument(s)", name, parameters.size()));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    Value v = std::move(given[i]);
    if (v.missing()) {
      v = i >= first_default
              ? Eval(*s.signature.defaults[i - first_default], scope.get())
              : Value::Undefined(fmt::format("parameter '{}' was not provided",
                                             template_.names[static_cast<size_t>(parameters[i])]));
    }
    Bind(parameters[i], std::move(v), scope.get());
  }
  StrBuilder out(budget_);
  Exec(s.body, scope.get(), out);
  --macro_depth_;
  return out.Take();
}

void Interpreter::Bind(int name, Value value, Frame* frame) {
  if (frame == nullptr) {
    globals_[static_cast<size_t>(name)] = std::move(value);
    return;
  }
  for (auto& [n, v] : frame->variables) {
    if (n == name) {
      v = std::move(value);
      return;
    }
  }
  frame->variables.emplace_back(name, std::move(value));
}

void Interpreter::Assign(const Target& t, Value value, Frame* frame) {
  switch (t.kind) {
    case Target::Kind::kName:
      Bind(t.name, std::move(value), frame);
      return;
    case Target::Kind::kAttribute: {
      const Value object = Lookup(t.name, frame);
      if (!object.Is(Kind::kNamespace)) {
        Fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
      }
      auto& attributes = object.as<Namespace>().attributes;
      for (auto& [n, v] : attributes) {
        if (n == t.attribute) {
          v = std::move(value);
          return;
        }
      }
      attributes.emplace_back(t.attribute, std::move(value));
      return;
    }
    case Target::Kind::kTuple: {
      const std::shared_ptr<const Seq> items = Items(value, budget_);
      if (items->items.size() != t.items.size()) {
        Fail("ValueError", fmt::format("cannot unpack {} values into {} names", items->items.size(),
                                       t.items.size()));
      }
      for (size_t i = 0; i < t.items.size(); ++i) Assign(t.items[i], items->items[i], frame);
      return;
    }
  }
}

Value Interpreter::Lookup(int name, Frame* frame) const {
  for (; frame != nullptr; frame = frame->parent) {
    for (const auto& [n, v] : frame->variables) {
      if (n == name) return v;
    }
  }
  const Value& v = globals_[static_cast<size_t>(name)];
  if (!v.missing()) return v;
  return Value::Undefined("'" + template_.names[static_cast<size_t>(name)] + "' is undefined");
}

// ---- expressions

Value Interpreter::Eval(const Expr& e, Frame* frame) {
  budget_.Step();
  switch (e.op) {
    case Op::kConst:
      return e.value;
    case Op::kName:
      return Lookup(e.name, frame);
    default:
      break;
  }
  budget_.CheckStack();
  line_ = e.line;
  column_ = e.column;
  const auto operand = [&](size_t i) { return Eval(*e.operands[i], frame); };
  switch (e.op) {
    case Op::kList:
    case Op::kTuple:
    case Op::kDict:
      return EvalContainer(e, frame);
    case Op::kNot:
      return Value::Bool(!Truthy(operand(0)));
    case Op::kNeg:
    case Op::kPos:
      return Negate(operand(0), e.op == Op::kNeg);
    case Op::kAnd: {
      Value a = operand(0);
      return Truthy(a) ? operand(1) : a;
    }
    case Op::kOr: {
      Value a = operand(0);
      return Truthy(a) ? a : operand(1);
    }
    case Op::kConcat: {
      StrBuilder b(budget_);
      for (const ExprPtr& o : e.operands) AppendStr(Eval(*o, frame), b);
      return b.Take();
    }
    case Op::kCompare:
      return EvalCompare(e, frame);
    case Op::kCond:
      if (Truthy(operand(0))) return operand(1);
      if (e.operands.size() > 2) return operand(2);
      return Value::Undefined(
          "the inline if-expression evaluated to false and no else section was defined");
    case Op::kAttribute:
      return GetAttribute(operand(0), e.text);
    case Op::kItem: {
      const Value object = operand(0);
      return GetItem(object, operand(1));
    }
    case Op::kSlice:
      return EvalSlice(e, frame);
    case Op::kCall:
      return EvalCall(e, frame);
    case Op::kFilter:
      return EvalFilter(e, frame, operand(0));
    case Op::kTest:
      return EvalTest(e, frame);
    default: {
      const Value a = operand(0);
      return Arithmetic(e.op, a, operand(1), *this);
    }
  }
}

Value Interpreter::EvalContainer(const Expr& e, Frame* frame) {
  if (e.op == Op::kDict) {
    auto d = std::make_shared<Dict>();
    for (size_t i = 0; i < e.operands.size(); i += 2) {
      Value key = Eval(*e.operands[i], frame);
      if (!Hashable(key)) Fail("TypeError", fmt::format("unhashable type: '{}'", TypeName(key)));
      d->Set(std::move(key), Eval(*e.operands[i + 1], frame));
    }
    return MakeDict(std::move(d), budget_);
  }
  std::vector<Value> items;
  items.reserve(e.operands.size());
  for (const ExprPtr& o : e.operands) items.push_back(Eval(*o, frame));
  return MakeSeq(e.op == Op::kList ? Kind::kList : Kind::kTuple, std::move(items), budget_);
}

Value Interpreter::EvalCompare(const Expr& e, Frame* frame) {
  Value a = Eval(*e.operands[0], frame);
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    Value b = Eval(*e.operands[i + 1], frame);
    bool holds = false;
    switch (e.comparisons[i]) {
      case Comparison::kEq:
        holds = Equal(a, b);
        break;
      case Comparison::kNe:
        holds = !Equal(a, b);
        break;
      case Comparison::kLt:
        holds = Less(a, b, "<");
        break;
      case Comparison::kGt:
        holds = Less(b, a, ">");
        break;
      case Comparison::kLe:
        holds = Less(a, b, "<=") || Equal(a, b);
        break;
      case Comparison::kGe:
        holds = Less(b, a, ">=") || Equal(a, b);
        break;
      case Comparison::kIn:
        holds = Contains(b, a, budget_);
        break;
      case Comparison::kNotIn:
        holds = !Contains(b, a, budget_);
        break;
    }
    if (!holds) return Value::Bool(false);
    a = std::move(b);
  }
  return Value::Bool(true);
}

void Interpreter::EvalArguments(const Expr& e, size_t first, Frame* frame, Args& args) {
  args.positional.reserve(args.positional.size() + e.operands.size());
  for (size_t i = first; i < e.operands.size(); ++i)
    args.positional.push_back(Eval(*e.operands[i], frame));
  for (const auto& [name, value] : e.named) args.named.emplace_back(name, Eval(*value, frame));
  if (e.star != nullptr) {
    const auto more = Items(Eval(*e.star, frame), budget_);
    budget_.Charge(more->items.size() * sizeof(Value));
    args.positional.insert(args.positional.end(), more->items.begin(), more->items.end());
  }
  if (e.star_star != nullptr) {
    const Value more = Eval(*e.star_star, frame);
    if (!more.Is(Kind::kDict)) Fail("TypeError", "argument after ** must be a mapping");
    for (const auto& [k, v] : more.as<Dict>().items) {
      if (!k.string()) Fail("TypeError", "keywords must be strings");
      args.named.emplace_back(std::string(k.text()), v);
    }
  }
}

Value Interpreter::EvalCall(const Expr& e, Frame* frame) {
  const Expr& callee = *e.operands[0];
  Args args;
  if (callee.op == Op::kAttribute) {
    // The common x.method(...), without making a bound method.
    const Value self = Eval(*callee.operands[0], frame);
    bool mutates = false;
    const MethodFunction method = FindMethod(self, callee.text, mutates);
    if (method != nullptr && !mutates) {
      EvalArguments(e, 1, frame, args);
      line_ = e.line;
      column_ = e.column;
      return method(*this, self, args);
    }
    const Value f = GetAttribute(self, callee.text);
    EvalArguments(e, 1, frame, args);
    return Call(f, args);
  }
  const Value f = Eval(callee, frame);
  EvalArguments(e, 1, frame, args);
  line_ = e.line;
  column_ = e.column;
  return Call(f, args);
}

Value Interpreter::EvalFilter(const Expr& e, Frame* frame, Value input) {
  if (e.filter == nullptr) Fail("TemplateRuntimeError", "no filter named '" + e.text + "'");
  Args args;
  args.positional.push_back(std::move(input));
  EvalArguments(e, 1, frame, args);
  line_ = e.line;
  column_ = e.column;
  return e.filter(*this, args);
}

// The filters of a filter block or block set, innermost first; its input stands where the chain has
// null.
Value Interpreter::Filtered(const Expr* chain, Frame* frame, Value input) {
  if (chain == nullptr) return input;
  return EvalFilter(*chain, frame, Filtered(chain->operands[0].get(), frame, std::move(input)));
}

Value Interpreter::EvalTest(const Expr& e, Frame* frame) {
  if (e.test == nullptr) Fail("TemplateRuntimeError", "no test named '" + e.text + "'");
  Args args;
  EvalArguments(e, 0, frame, args);
  line_ = e.line;
  column_ = e.column;
  return Value::Bool(e.test(*this, args));
}

Value Interpreter::EvalSlice(const Expr& e, Frame* frame) {
  const Value object = Eval(*e.operands[0], frame);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i)
    bounds[i] = e.operands[i + 1] ? Eval(*e.operands[i + 1], frame) : Value::None();
  if (object.undefined()) FailUndefined(object);
  for (const Value& b : bounds) {
    if (!b.none() && !b.integer()) {
      return Value::Undefined(fmt::format("{} has no element of this slice", ObjectRepr(object)));
    }
  }
  return Slice(object, bounds[0], bounds[1], bounds[2], budget_);
}

Value Interpreter::Call(const Value& callee, Args& args) {
  if (callee.undefined()) FailUndefined(callee);
  if (callee.Is(Kind::kLoop)) {
    Fail("TypeError", "the loop must have the 'recursive' marker to be called recursively");
  }
  if (!callee.Is(Kind::kFunction))
    Fail("TypeError", fmt::format("'{}' object is not callable", TypeName(callee)));
  budget_.CheckStack();
  return callee.as<Function>().call(*this, args);
}

Value Interpreter::GetAttribute(const Value& object, std::string_view name) {
  if (object.undefined()) FailUndefined(object);
  // Methods come before keys, as Python's getattr comes before its getitem.
  bool mutates = false;
  const MethodFunction method = FindMethod(object, name, mutates);
  if (method == nullptr && object.Is(Kind::kDict)) {
    if (const Value* v = object.as<Dict>().Find(name)) return *v;
  }
  if (mutates ||
      (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__")) {
    return Value::Undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(object)),
        "SecurityError");
  }
  if (method != nullptr) {
    Value bound = MakeFunction(std::string(name), [object, method](Interpreter& in, Args& args) {
      return method(in, object, args);
    });
    Deepen(const_cast<Function&>(bound.as<Function>()), object);
    budget_.Charge(sizeof(Function));
    return bound;
  }
  Value v;
  if (object.Is(Kind::kNamespace)) {
    for (const auto& [n, value] : object.as<Namespace>().attributes) {
      if (n == name) return value;
    }
  } else if (object.Is(Kind::kTuple) && object.as<Seq>().repr == kGroup) {
    if (name == "grouper") return object.as<Seq>().items[0];
    if (name == "list") return object.as<Seq>().items[1];
  } else if (object.Is(Kind::kLoop)) {
    v = LoopAttribute(object, name);
  } else if (object.Is(Kind::kFunction)) {
    const Function& f = object.as<Function>();
    if (f.attribute) {
      v = f.attribute(name);
    } else if (name == "name") {
      v = Value::String(f.name);
    }
  }
  if (!v.missing()) return v;
  return Value::Undefined("'" + ObjectRepr(object) + "' has no attribute '" + std::string(name) +
                          "'");
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.undefined()) FailUndefined(object);
  if (object.Is(Kind::kDict)) {
    if (Hashable(key)) {
      if (const Value* v = object.as<Dict>().Find(key)) return *v;
    }
  } else if (key.integer() &&
             (object.string() ||
              (object.sequence() && !object.Is(Kind::kGenerator) && !object.Is(Kind::kView)))) {
    Value v = key.Is(Kind::kBigInt) ? Value() : Index(object, key.int_value(), budget_);
    if (!v.missing()) return v;
  }
  if (key.string()) {
    if (!object.Is(Kind::kNamespace)) return GetAttribute(object, key.text());
    return Value::Undefined("'" + ObjectRepr(object) + "' has no attribute '" +
                            std::string(key.text()) + "'");
  }
  StrBuilder b(budget_);
  AppendRepr(key, b);
  return Value::Undefined(fmt::format("{} has no element {}", ObjectRepr(object), b.text()));
}

Value Interpreter::MakeNamespace(Args& args) {
  auto n = std::make_shared<Namespace>();
  const auto put = [&](std::string name, Value v) {
    for (auto& [k, old] : n->attributes) {
      if (k == name) {
        old = std::move(v);
        return;
      }
    }
    n->attributes.emplace_back(std::move(name), std::move(v));
  };
  for (const Value& v : args.positional) {
    if (!v.Is(Kind::kDict)) Fail("TypeError", "namespace() takes a mapping and keyword arguments");
    for (const auto& [k, value] : v.as<Dict>().items) {
      if (k.string()) put(std::string(k.text()), value);
    }
  }
  for (auto& [k, v] : args.named) put(k, std::move(v));
  budget_.Charge(sizeof(Namespace) + n->attributes.size() * (sizeof(Value) + sizeof(std::string)));
  namespaces_.push_back(n);
  return Value::Object(Kind::kNamespace, n);
}

}  // namespace vllm::text::jinja
