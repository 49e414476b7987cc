// The part of the template parser that reads expressions, by precedence climbing. Included by
// jinja_parser.cc alone, whose class for statements is built on it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "vllm/text/jinja_lexer.h"
#include "vllm/text/jinja_parser.h"

namespace vllm::text::jinja {

// Brackets, blocks and prefix operators inside one another: each costs a dozen stack frames here.
inline constexpr int kMaxNesting = 100;
// Of a tree: "a + b + c + ..." is as deep as it is long.
inline constexpr int kMaxDepth = 1000;
class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(Tokenize(source)) {}

  struct Nest {
    explicit Nest(ExpressionParser& p) : parser(p) {
      if (++p.nesting_ > kMaxNesting)
        p.Error(p.Now(), fmt::format("nesting deeper than {} levels", kMaxNesting));
    }
    ~Nest() { --parser.nesting_; }
    ExpressionParser& parser;
  };

  const Token& Now() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& Next() {
    const Token& t = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }

  [[noreturn]] static void Error(const Token& t, std::string message,
                                 base::Code code = base::Code::kCorrupt) {
    throw Failure{"TemplateSyntaxError", std::move(message), code, t.line, t.column};
  }

  static std::string Describe(const Token& t) {
    switch (t.type) {
      case Tok::kData:
        return "template text";
      case Tok::kVariableBegin:
        return "'{{'";
      case Tok::kVariableEnd:
        return "'}}'";
      case Tok::kBlockBegin:
        return "'{%'";
      case Tok::kBlockEnd:
        return "'%}'";
      case Tok::kEnd:
        return "the end of the template";
      default:
        return "'" + base::Printable(t.text) + "'";
    }
  }

  bool IsOp(std::string_view op) const { return Now().type == Tok::kOperator && Now().text == op; }
  bool IsName(std::string_view name) const {
    return Now().type == Tok::kName && Now().text == name;
  }
  bool SkipOp(std::string_view op) {
    if (!IsOp(op)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!IsName(name)) return false;
    Next();
    return true;
  }
  void ExpectOp(std::string_view op) {
    if (!SkipOp(op)) Error(Now(), fmt::format("expected '{}', got {}", op, Describe(Now())));
  }
  void ExpectName(std::string_view name) {
    if (!SkipName(name)) Error(Now(), fmt::format("expected '{}', got {}", name, Describe(Now())));
  }
  std::string AnyName() {
    if (Now().type != Tok::kName)
      Error(Now(), fmt::format("expected a name, got {}", Describe(Now())));
    return Next().text;
  }
  void ExpectBlockEnd() {
    if (Now().type != Tok::kBlockEnd)
      Error(Now(), fmt::format("expected '%}}', got {}", Describe(Now())));
    Next();
  }

  int Intern(const std::string& name) {
    const auto [it, fresh] = interned_.emplace(name, static_cast<int>(template_->names.size()));
    if (fresh) template_->names.push_back(name);
    return it->second;
  }

  ExprPtr Make(Op op, const Token& t) {
    auto e = std::make_unique<Expr>();
    e->op = op;
    e->line = t.line;
    e->column = t.column;
    return e;
  }

  void Adopt(Expr& parent, ExprPtr child) {
    if (child != nullptr) Deepen(parent, *child);
    parent.operands.push_back(std::move(child));
  }
  void Deepen(Expr& parent, const Expr& child) {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > kMaxDepth) {
      Error(Now(), fmt::format("expression deeper than {} operations", kMaxDepth));
    }
  }

  ExprPtr Binary(Op op, const Token& t, ExprPtr a, ExprPtr b) {
    ExprPtr e = Make(op, t);
    Adopt(*e, std::move(a));
    Adopt(*e, std::move(b));
    return e;
  }

  bool TupleEnds() const {
    return Now().type == Tok::kVariableEnd || Now().type == Tok::kBlockEnd || IsOp(")") ||
           IsName("recursive");
  }

  // One expression, or several with commas: a tuple.
  ExprPtr TupleExpr(bool with_condition = true, bool parentheses = false) {
    const Token& t = Now();
    if (TupleEnds()) {
      if (!parentheses) Error(t, fmt::format("expected an expression, got {}", Describe(t)));
      return Make(Op::kTuple, t);
    }
    ExprPtr first = with_condition ? Expression() : Or();
    if (!IsOp(",")) return first;
    ExprPtr tuple = Make(Op::kTuple, t);
    Adopt(*tuple, std::move(first));
    while (SkipOp(",")) {
      if (TupleEnds()) break;
      Adopt(*tuple, with_condition ? Expression() : Or());
    }
    return tuple;
  }

  ExprPtr Expression() {
    Nest nest(*this);
    ExprPtr e = Or();
    while (IsName("if")) {
      const Token& t = Next();
      ExprPtr cond = Make(Op::kCond, t);
      ++soft_;
      Adopt(*cond, Or());
      Adopt(*cond, std::move(e));
      if (SkipName("else")) Adopt(*cond, Expression());
      --soft_;
      e = std::move(cond);
    }
    return e;
  }

  ExprPtr Or() {
    ExprPtr e = And();
    while (IsName("or")) {
      const Token& t = Next();
      e = Binary(Op::kOr, t, std::move(e), And());
    }
    return e;
  }

  ExprPtr And() {
    ExprPtr e = Not();
    while (IsName("and")) {
      const Token& t = Next();
      e = Binary(Op::kAnd, t, std::move(e), Not());
    }
    return e;
  }

  ExprPtr Not() {
    if (!IsName("not")) return Compare();
    Nest nest(*this);
    ExprPtr e = Make(Op::kNot, Next());
    Adopt(*e, Not());
    return e;
  }

  bool ComparisonOp(Comparison& c) {
    static constexpr std::pair<std::string_view, Comparison> kOps[] = {
        {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<=", Comparison::kLe},
        {">=", Comparison::kGe}, {"<", Comparison::kLt},  {">", Comparison::kGt}};
    for (const auto& [text, op] : kOps) {
      if (SkipOp(text)) {
        c = op;
        return true;
      }
    }
    if (SkipName("in")) {
      c = Comparison::kIn;
      return true;
    }
    if (IsName("not") && Ahead().type == Tok::kName && Ahead().text == "in") {
      Next();
      Next();
      c = Comparison::kNotIn;
      return true;
    }
    return false;
  }

  ExprPtr Compare() {
    const Token& t = Now();
    ExprPtr e = Sum();
    Comparison c;
    if (!ComparisonOp(c)) return e;
    ExprPtr compare = Make(Op::kCompare, t);
    Adopt(*compare, std::move(e));
    do {
      compare->comparisons.push_back(c);
      Adopt(*compare, Sum());
    } while (ComparisonOp(c));
    return compare;
  }

  ExprPtr Sum() {
    ExprPtr e = Concat();
    while (IsOp("+") || IsOp("-")) {
      const Token& t = Next();
      e = Binary(t.text == "+" ? Op::kAdd : Op::kSub, t, std::move(e), Concat());
    }
    return e;
  }

  ExprPtr Concat() {
    const Token& t = Now();
    ExprPtr e = Product();
    if (!IsOp("~")) return e;
    ExprPtr concat = Make(Op::kConcat, t);
    Adopt(*concat, std::move(e));
    while (SkipOp("~")) Adopt(*concat, Product());
    return concat;
  }

  ExprPtr Product() {
    ExprPtr e = Power();
    while (IsOp("*") || IsOp("/") || IsOp("//") || IsOp("%")) {
      const Token& t = Next();
      const Op op = t.text == "*"    ? Op::kMul
                    : t.text == "/"  ? Op::kDiv
                    : t.text == "//" ? Op::kFloorDiv
                                     : Op::kMod;
      e = Binary(op, t, std::move(e), Power());
    }
    return e;
  }

  ExprPtr Power() {
    ExprPtr e = Unary(true);
    while (IsOp("**")) {
      const Token& t = Next();
      e = Binary(Op::kPow, t, std::move(e), Unary(true));
    }
    return e;
  }

  ExprPtr Unary(bool with_filter) {
    ExprPtr e;
    if (IsOp("-") || IsOp("+")) {
      Nest nest(*this);
      const Token& t = Next();
      e = Make(t.text == "-" ? Op::kNeg : Op::kPos, t);
      Adopt(*e, Unary(false));
    } else {
      e = Primary();
    }
    e = Postfix(std::move(e));
    if (!with_filter) return e;
    while (true) {
      if (IsOp("|")) {
        e = FilterChain(std::move(e), false);
      } else if (IsName("is")) {
        e = Test(std::move(e));
      } else if (IsOp("(")) {
        e = Call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr Primary() {
    const Token& t = Now();
    switch (t.type) {
      case Tok::kName: {
        Next();
        if (t.text == "true" || t.text == "True" || t.text == "false" || t.text == "False") {
          return Constant(Value::Bool(t.text[0] == 't' || t.text[0] == 'T'), t);
        }
        if (t.text == "none" || t.text == "None") return Constant(Value::None(), t);
        for (Stmt* m : macros_) {
          m->uses_varargs |= t.text == "varargs";
          m->uses_kwargs |= t.text == "kwargs";
          m->uses_caller |= t.text == "caller";
        }
        ExprPtr e = Make(Op::kName, t);
        e->name = Intern(t.text);
        return e;
      }
      case Tok::kString: {
        std::string s = Next().text;
        while (Now().type == Tok::kString) s += Next().text;
        template_->strings.push_back(s);
        return Constant(Value::String(std::move(s)), t);
      }
      case Tok::kInteger:
      case Tok::kFloat:
        Next();
        return Constant(t.value, t);
      case Tok::kOperator:
        if (t.text == "(") {
          Nest nest(*this);
          Next();
          ExprPtr e = TupleExpr(true, true);
          ExpectOp(")");
          return e;
        }
        if (t.text == "[") return List();
        if (t.text == "{") return DictLiteral();
        break;
      default:
        break;
    }
    Error(t, fmt::format("expected an expression, got {}", Describe(t)));
  }

  ExprPtr Constant(Value v, const Token& t) {
    ExprPtr e = Make(Op::kConst, t);
    e->value = std::move(v);
    return e;
  }

  ExprPtr List() {
    ExprPtr e = Make(Op::kList, Next());
    while (!IsOp("]")) {
      if (!e->operands.empty()) ExpectOp(",");
      if (IsOp("]")) break;
      Adopt(*e, Expression());
    }
    ExpectOp("]");
    return e;
  }

  ExprPtr DictLiteral() {
    ExprPtr e = Make(Op::kDict, Next());
    while (!IsOp("}")) {
      if (!e->operands.empty()) ExpectOp(",");
      if (IsOp("}")) break;
      Adopt(*e, Expression());
      ExpectOp(":");
      Adopt(*e, Expression());
    }
    ExpectOp("}");
    return e;
  }

  ExprPtr Postfix(ExprPtr e) {
    while (true) {
      if (IsOp(".")) {
        e = Dot(std::move(e));
      } else if (IsOp("[")) {
        e = Subscript(std::move(e));
      } else if (IsOp("(")) {
        e = Call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr Dot(ExprPtr object) {
    const Token& t = Next();
    const Token& name = Next();
    if (name.type == Tok::kName) {
      ExprPtr e = Make(Op::kAttribute, t);
      e->text = name.text;
      Adopt(*e, std::move(object));
      return e;
    }
    if (name.type != Tok::kInteger) Error(name, "expected a name or a number after '.'");
    return Binary(Op::kItem, t, std::move(object), Constant(name.value, name));
  }

  ExprPtr Subscript(ExprPtr object) {
    const Token& t = Next();
    if (IsOp("]")) Error(t, "expected a subscript");
    ExprPtr start;
    if (!IsOp(":")) {
      start = Expression();
      if (IsOp(",")) {
        ExprPtr tuple = Make(Op::kTuple, t);
        Adopt(*tuple, std::move(start));
        while (SkipOp(",")) Adopt(*tuple, Expression());
        ExpectOp("]");
        return Binary(Op::kItem, t, std::move(object), std::move(tuple));
      }
      if (SkipOp("]")) return Binary(Op::kItem, t, std::move(object), std::move(start));
    }
    ExpectOp(":");
    ExprPtr stop, step;
    if (!IsOp(":") && !IsOp("]")) stop = Expression();
    if (SkipOp(":") && !IsOp("]")) step = Expression();
    ExpectOp("]");
    ExprPtr e = Make(Op::kSlice, t);
    Adopt(*e, std::move(object));
    Adopt(*e, std::move(start));
    Adopt(*e, std::move(stop));
    Adopt(*e, std::move(step));
    return e;
  }

  ExprPtr Call(ExprPtr callee) {
    ExprPtr e = Make(Op::kCall, Now());
    Adopt(*e, std::move(callee));
    Arguments(*e);
    return e;
  }

  void Arguments(Expr& e) {
    Nest nest(*this);
    const Token& open = Now();
    ExpectOp("(");
    bool first = true;
    while (!IsOp(")")) {
      if (!first) {
        ExpectOp(",");
        if (IsOp(")")) break;
      }
      first = false;
      if (IsOp("*") && e.star == nullptr && e.star_star == nullptr) {
        Next();
        e.star = Expression();
        Deepen(e, *e.star);
      } else if (IsOp("**") && e.star_star == nullptr) {
        Next();
        e.star_star = Expression();
        Deepen(e, *e.star_star);
      } else if (Now().type == Tok::kName && Ahead().type == Tok::kOperator &&
                 Ahead().text == "=" && e.star_star == nullptr) {
        const Token& key = Next();
        Next();
        for (const auto& n : e.named) {
          if (n.first == key.text)
            Error(key, fmt::format("keyword argument '{}' is given twice", key.text));
        }
        ExprPtr v = Expression();
        Deepen(e, *v);
        e.named.emplace_back(key.text, std::move(v));
      } else {
        if (e.star != nullptr || e.star_star != nullptr || !e.named.empty()) {
          Error(open, "a positional argument follows keyword arguments");
        }
        Adopt(e, Expression());
      }
    }
    ExpectOp(")");
  }

  std::string DottedName() {
    std::string name = AnyName();
    while (SkipOp(".")) name += "." + AnyName();
    return name;
  }

  ExprPtr FilterChain(ExprPtr e, bool inline_start) {
    while (inline_start || IsOp("|")) {
      if (!inline_start) Next();
      inline_start = false;
      const Token& t = Now();
      ExprPtr f = Make(Op::kFilter, t);
      f->text = DottedName();
      f->filter = FindFilter(f->text);
      if (f->filter == nullptr && soft_ == 0)
        Error(t, fmt::format("no filter named '{}'", base::Printable(f->text)));
      Adopt(*f, std::move(e));
      if (IsOp("(")) Arguments(*f);
      e = std::move(f);
    }
    return e;
  }

  ExprPtr Test(ExprPtr e) {
    Next();  // is
    const Token& t = Now();
    const bool negated = SkipName("not");
    const Token& name = Now();
    ExprPtr test = Make(Op::kTest, name);
    test->text = DottedName();
    test->test = FindTest(test->text);
    if (test->test == nullptr && soft_ == 0)
      Error(name, fmt::format("no test named '{}'", base::Printable(test->text)));
    Adopt(*test, std::move(e));
    if (IsOp("(")) {
      Arguments(*test);
    } else if (TestArgumentFollows()) {
      if (IsName("is")) Error(Now(), "tests cannot be chained with 'is'");
      Adopt(*test, Postfix(Primary()));
    }
    if (!negated) return test;
    ExprPtr no = Make(Op::kNot, t);
    Adopt(*no, std::move(test));
    return no;
  }

  bool TestArgumentFollows() const {
    switch (Now().type) {
      case Tok::kName:
        return !IsName("else") && !IsName("or") && !IsName("and");
      case Tok::kString:
      case Tok::kInteger:
      case Tok::kFloat:
        return true;
      case Tok::kOperator:
        return IsOp("[") || IsOp("{");
      default:
        return false;
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::unique_ptr<Template> template_;
  std::unordered_map<std::string, int> interned_;
  std::vector<Stmt*> macros_;  // being parsed, outermost first
  int nesting_ = 0;
  int soft_ = 0;  // inside something conditional, where an unknown filter is an error only when it
                  // is reached
};

}  // namespace vllm::text::jinja
