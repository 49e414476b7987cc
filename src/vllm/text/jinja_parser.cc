#include "vllm/text/jinja_parser.h"

#include <algorithm>

#include "base/strings.h"
#include "vllm/text/jinja_expression_parser.h"

namespace vllm::text::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  std::unique_ptr<Template> Run() {
    template_ = std::make_unique<Template>();
    template_->body = Statements({});
    return std::move(template_);
  }

 private:
  std::unique_ptr<Stmt> New(Stmt::Kind kind, const Token& t) {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = t.line;
    s->column = t.column;
    return s;
  }

  // Up to one of the `ends` tags, which stays unread; or, without `ends`, the whole template.
  Body Statements(const std::vector<std::string_view>& ends) {
    Nest nest(*this);
    const Token& open = Now();
    Body body;
    while (true) {
      const Token& t = Now();
      switch (t.type) {
        case Tok::kEnd:
          if (!ends.empty()) {
            Error(open,
                  fmt::format("the template ends before the '{}' of the tag here", ends.back()));
          }
          return body;
        case Tok::kData:
          body.push_back(New(Stmt::Kind::kData, t));
          body.back()->data = t.text;
          Next();
          break;
        case Tok::kVariableBegin:
          Next();
          body.push_back(New(Stmt::Kind::kPrint, t));
          body.back()->expr = TupleExpr();
          if (Now().type != Tok::kVariableEnd) {
            Error(Now(), fmt::format("expected '}}}}', got {}", Describe(Now())));
          }
          Next();
          break;
        case Tok::kBlockBegin: {
          Next();
          if (Now().type != Tok::kName) Error(Now(), "expected the name of a tag");
          for (const std::string_view end : ends) {
            if (Now().text == end) return body;
          }
          Statement(body);
          ExpectBlockEnd();
          break;
        }
        default:
          Error(t, fmt::format("unexpected {}", Describe(t)));
      }
    }
  }

  // The body of a tag whose opening part has been read, up to and without its end mark.
  Body Block(std::string_view end) {
    SkipOp(":");
    ExpectBlockEnd();
    Body b = Statements({end});
    Next();
    return b;
  }

  void Statement(Body& body) {
    const Token& t = Next();
    const std::string& tag = t.text;
    if (tag == "if") {
      body.push_back(If(t));
    } else if (tag == "for") {
      body.push_back(For(t));
    } else if (tag == "set") {
      body.push_back(Set(t));
    } else if (tag == "macro") {
      body.push_back(Macro(t));
    } else if (tag == "call") {
      body.push_back(CallBlock(t));
    } else if (tag == "filter") {
      auto s = New(Stmt::Kind::kFilterBlock, t);
      s->expr = FilterChain(nullptr, true);
      s->body = Block("endfilter");
      body.push_back(std::move(s));
    } else if (tag == "with") {
      body.push_back(With(t));
    } else if (tag == "generation") {
      auto s = New(Stmt::Kind::kScope, t);
      s->body = Block("endgeneration");
      body.push_back(std::move(s));
    } else if (tag == "block") {
      auto s = New(Stmt::Kind::kScope, t);
      const std::string name = AnyName();
      SkipName("scoped");
      SkipName("required");
      s->body = Block("endblock");
      SkipName(name);
      body.push_back(std::move(s));
    } else if (tag == "print") {
      while (Now().type != Tok::kBlockEnd) {
        body.push_back(New(Stmt::Kind::kPrint, t));
        body.back()->expr = Expression();
        if (Now().type != Tok::kBlockEnd) ExpectOp(",");
      }
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) Error(t, fmt::format("'{}' outside of a loop", tag));
      body.push_back(New(tag == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, t));
    } else if (tag == "autoescape") {
      auto s = New(Stmt::Kind::kScope, t);
      ExprPtr on = Expression();
      if (on->op != Op::kConst || Truthy(on->value)) {
        Error(t, "autoescape is not supported in a chat template", base::Code::kUnsupported);
      }
      s->body = Block("endautoescape");
      body.push_back(std::move(s));
    } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
      Error(t, fmt::format("tag '{}' is not supported: a chat template is one file", tag),
            base::Code::kUnsupported);
    } else {
      Error(t, fmt::format("unknown tag '{}'", base::Printable(tag)));
    }
  }

  std::unique_ptr<Stmt> If(const Token& t) {
    auto s = New(Stmt::Kind::kIf, t);
    ++soft_;
    while (true) {
      ExprPtr condition = TupleExpr(false);
      SkipOp(":");
      ExpectBlockEnd();
      Body then = Statements({"elif", "else", "endif"});
      s->branches.emplace_back(std::move(condition), std::move(then));
      const std::string& next = Next().text;
      if (next == "elif") continue;
      if (next == "else") s->otherwise = Block("endif");
      break;
    }
    --soft_;
    return s;
  }

  std::unique_ptr<Stmt> For(const Token& t) {
    auto s = New(Stmt::Kind::kFor, t);
    s->target = AssignTarget(false, true);
    ExpectName("in");
    s->expr = TupleExpr(false);
    if (SkipName("if")) s->condition = Expression();
    if (IsName("recursive")) {
      Error(Now(), "recursive loops are not supported: write a macro that calls itself",
            base::Code::kUnsupported);
    }
    SkipOp(":");
    ExpectBlockEnd();
    ++loops_;
    s->body = Statements({"else", "endfor"});
    --loops_;
    if (Next().text == "else") s->otherwise = Block("endfor");
    return s;
  }

  std::unique_ptr<Stmt> Set(const Token& t) {
    auto s = New(Stmt::Kind::kSet, t);
    s->target = AssignTarget(true, false);
    if (SkipOp("=")) {
      s->expr = TupleExpr();
      return s;
    }
    s->kind = Stmt::Kind::kSetBlock;
    if (IsOp("|")) s->expr = FilterChain(nullptr, false);
    s->body = Block("endset");
    return s;
  }

  void ParseSignature(Signature& signature) {
    ExpectOp("(");
    while (!IsOp(")")) {
      if (!signature.parameters.empty()) ExpectOp(",");
      signature.parameters.push_back(Intern(AnyName()));
      if (SkipOp("=")) {
        signature.defaults.push_back(Expression());
      } else if (!signature.defaults.empty()) {
        Error(Now(), "a parameter without default follows one with a default");
      }
    }
    ExpectOp(")");
  }

  std::unique_ptr<Stmt> Macro(const Token& t) {
    auto s = New(Stmt::Kind::kMacro, t);
    s->name = Intern(AnyName());
    MacroBody(*s, [&] {
      ParseSignature(s->signature);
      s->body = Block("endmacro");
    });
    return s;
  }

  std::unique_ptr<Stmt> CallBlock(const Token& t) {
    auto s = New(Stmt::Kind::kCallBlock, t);
    MacroBody(*s, [&] {
      if (IsOp("(")) ParseSignature(s->signature);
    });
    s->expr = Expression();
    if (s->expr->op != Op::kCall) Error(t, "a call block needs a call: {% call name(...) %}");
    MacroBody(*s, [&] { s->body = Block("endcall"); });
    return s;
  }

  // Parses a part of a macro, and notes which of the special names it mentions.
  template <typename Parse>
  void MacroBody(Stmt& s, Parse parse) {
    const int loops = loops_;
    loops_ = 0;
    macros_.push_back(&s);
    parse();
    macros_.pop_back();
    loops_ = loops;
  }

  std::unique_ptr<Stmt> With(const Token& t) {
    auto s = New(Stmt::Kind::kWith, t);
    while (Now().type != Tok::kBlockEnd) {
      if (!s->bindings.empty()) ExpectOp(",");
      Target target = AssignTarget(false, false);
      ExpectOp("=");
      s->bindings.emplace_back(std::move(target), Expression());
    }
    s->body = Block("endwith");
    return s;
  }

  Target OneTarget(bool attribute) {
    Nest nest(*this);
    const Token& t = Now();
    Target target;
    target.line = t.line;
    target.column = t.column;
    if (SkipOp("(")) {
      target = AssignTarget(attribute, false);
      ExpectOp(")");
      return target;
    }
    const std::string name = AnyName();
    for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) Error(t, fmt::format("cannot assign to '{}'", name));
    }
    target.name = Intern(name);
    if (attribute && SkipOp(".")) {
      target.kind = Target::Kind::kAttribute;
      target.attribute = AnyName();
    }
    return target;
  }

  Target AssignTarget(bool attribute, bool in_for) {
    Target first = OneTarget(attribute);
    if (!IsOp(",")) return first;
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.line = first.line;
    tuple.column = first.column;
    tuple.items.push_back(std::move(first));
    while (SkipOp(",")) {
      if ((in_for && IsName("in")) || IsOp("=") || IsOp(")") || Now().type == Tok::kBlockEnd) break;
      tuple.items.push_back(OneTarget(attribute));
    }
    return tuple;
  }

  int loops_ = 0;
};

}  // namespace

int Template::NameIndex(std::string_view name) const {
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

std::unique_ptr<Template> ParseTemplate(std::string_view source) { return Parser(source).Run(); }

}  // namespace vllm::text::jinja
