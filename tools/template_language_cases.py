"""One-line templates that make_template_goldens.py renders with Jinja2; CONTEXT holds their variables."""

CONTEXT = {
    "s": "Hello, World", "u": "Grüße 世界 🦙 ǅ ß İ", "n": 7, "f": 2.5, "z": 0, "big": 12345678901234567890, "none_": None,
    "l": [3, 1, 2], "names": ["Bob", "alice", "Carol", "bob"], "d": {"b": 1, "a": [1, "x", None, True], "C": {"k": 1.0}},
    "rows": [{"n": "x", "v": 2, "t": {"u": "p"}}, {"n": "y", "v": 1, "t": {"u": "q"}}, {"n": "X", "v": 2}],
    "empty": [], "t": True, "lines": "a\n b\n\nc\r\nd", "html": "<a href='x'>T &amp; \"q\"</a>",
    "msgs": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
}

_EXPRESSIONS = r"""
s[0] ~ s[-1] ~ s[2:5] ~ s[::-1] ~ s[-3:] ~ s[100:] ~ s[5:2] ~ s[::3]
u[0] ~ u[-1] ~ u[2:9] ~ u[::-1] ~ u[-3:] ~ u[::2] ~ u|length
s[20] is defined
l[5] is defined
l[-1], l[-4] is defined, l[1:], l[:-1], l[::-1], l[::2], l[2:0:-1], l[-2:5]
(1, 2, 3)[1:], (1,)[0], (), (1,)
d.a[1], d['C'].k, d.C['k'], d.get('zz'), d.get('zz', 5), d.keys()|list, d.values()|list, d.items()|list
d.keys(), d.values(), d.items()
d, l, s, f, n, big, none_, t, u
[1.0, 1e16, 1e15, 1e-5, 0.0001, 123456.789, 1e22, -0.0, 0.1 + 0.2, 1/3, 2.0**70, 1e300*1e10]
1 + 2 * 3 - 4 / 2, 7 // 2, -7 // 2, 7 % -3, -7 % 3, 2 ** 10, 2 ** -1, 2 ** 0.5, 7.5 // 2, -7.5 % 2, 10 ** 30, big + 1, big * 2, -big
2 ** 3 ** 2, -2 ** 2, (-2) ** 2
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, "a" < "b", [1, 2] < [1, 3], (1, 2) == (1, 2), [1] == (1,), none == none, 1 != 2
"a" in "abc", "z" not in "abc", 1 in l, 9 in l, "b" in d, "zz" in d, none in [none], [] in [[]], "" in "x"
not t, not not l, t and l, z or "x", empty or none_ or "y", t and z, 1 if t else 2, (1 if z) is defined
"x" ~ none ~ true ~ 1.5 ~ [1, "a"] ~ {"k": "v"} ~ (1, 2) ~ undefined_name
"a" "b" 'c', "\x41\u00e9\U0001F999\t\\\"", 'it\'s', "q\"q", "both'\"", "\z", "\101"
["it's", 'q"q', "both'\"", "tab\t", "nl\n", "\\", "é", "\u200b", "\u00a0", "\x01", "\U0001F999", "\ue000"]
"x" * 3, 3 * "ab", [1] * 2, "x" * 0, "x" * -1, (1,) * 2
[1] + [2], (1,) + (2,), "a" + "b"
"a" + 1
1 + "a"
[1] + (2,)
none + 1
"a" - 1
-"a"
1 / 0
1 // 0
1 % 0
1 < "a"
none < 1
[] < ()
1 in 2
1 in "1"
l.foo
l.foo.bar
d.zz.yy
undefined_name.x
undefined_name["x"]
undefined_name + 1
undefined_name()
undefined_name < 1
undefined_name == undefined_other, undefined_name == none, undefined_name|length, undefined_name is iterable, undefined_name is sequence, undefined_name|list
none_.x
none_.x.y
none_["x"]
n.x, n["x"] is defined, n[0] is defined
5()
s()
l.append(1)
l.pop()
d.update({"x": 1})
d.pop("b")
d.setdefault("q", 1)
d.clear()
l.sort()
l.append
l.copy(), l.index(1), l.count(1), d.copy()
l.index(9)
d.__class__
s.__class__.__mro__
s._private is defined
"  x \n".strip(), "xxaxx".strip("x"), "abcab".strip("ba"), "  x ".lstrip(), "  x ".rstrip(), "\u00a0x\u2003".strip(), "x".strip(none)
"a,b,,c".split(","), "a b  c ".split(), "a,b,c".split(",", 1), "a,b,c".rsplit(",", 1), " a b c ".split(none, 1), " a b c ".rsplit(none, 1), "".split(), "".split(","), "a--b--c".split("--"), "a b".split(maxsplit=1), "x".rsplit(",")
"a".split("")
lines.splitlines(), lines.splitlines(true), "".splitlines(), "a\n".splitlines(), "a\u2028b\x0bc\x85d".splitlines()
s.startswith("Hell"), s.endswith("ld"), s.startswith(("x", "H")), s.startswith("e", 1), s.startswith("l", 2, 3), s.endswith("o", 0, 5), s.startswith("")
s.startswith(1)
s.replace("l", "L"), s.replace("l", "L", 1), s.replace("", "-"), "abc".replace("", "-", 2), u.replace("ü", "ue"), s.replace("zz", "y"), "aaa".replace("aa", "b")
s.replace("l")
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), u.upper(), u.lower(), u.title(), u.capitalize(), "don't stop".title(), "ὈΔΥΣΣΕΎΣ".lower(), "ﬁ".lower(), "x".casefold()
"-".join(["a", "b"]), "".join("abc"), ", ".join({"x": 1, "y": 2})
"-".join([1, 2])
s.find("o"), s.find("o", 5), s.find("zz"), s.rfind("o"), s.index("W"), s.count("l"), s.count(""), u.find("世"), u.rfind(" "), s.find("o", -4), s.find("", 50)
s.index("zz")
"12".isdigit(), "1a".isdigit(), "".isdigit(), "²".isdigit(), "½".isnumeric(), "ab".isalpha(), "é".isalpha(), "a1".isalnum(), " \t".isspace(), "Ab".isupper(), "AB1".isupper(), "ab".islower(), "1".islower(), "Ab Cd".istitle(), "x".isascii(), "٣".isdecimal()
s.removeprefix("Hello"), s.removesuffix("World"), s.removeprefix("x"), s.partition(", "), s.rpartition("o"), s.partition("zz"), s.rpartition("zz")
"7".zfill(3), "-7".zfill(4), "ab".center(7, "*"), "abc".center(6), "ab".ljust(4) ~ "|", "ab".rjust(4), "a\tb".expandtabs(4)
"{} {}".format(1, "a"), "{1}{0}".format("a", "b"), "{x}".format(x=5), "{0.k}".format({"k": 3}), "{0[1]}".format(l), "{:>5}|{:<5}|{:^5}|{:*^7}".format("a", "b", "c", "d"), "{{}}".format(), "{!r}".format("a"), "{:.2f}".format(3.14159), "{:,}".format(1234567), "{:05d}".format(42), "{:x} {:X} {:#x} {:b} {:o}".format(255, 255, 255, 5, 8), "{:+d}".format(3), "{:.1%}".format(0.256), "{:e}".format(12345.678), "{:g}".format(0.00001), "{:.3}".format("abcdef"), "{:{}}".format("a", 4) ~ "|", "{:>{w}}".format(1, w=3), "{:5}".format(true), "{:d}".format(true), "{:f}".format(1), "{:10.3f}|".format(2.5), "{}".format(none)
"{}".format()
"{x}".format()
"{".format(1)
"}".format(1)
"{:d}".format("a")
"%s-%d-%5.2f-%x-%r-%%" % ("a", 3, 2.5, 255, "q"), "%s" % "x", "%s" % [1], "%(a)s" % {"a": 1}, "%5s|%-5s|%05d|%+d|% d" % ("a", "b", 3, 4, 5), "%i" % 3.9, "%c%c" % ("a", 66), "%e" % 1234.5, "%g" % 0.0001, "%*d" % (5, 3), "%.2s" % "abc", "%o" % 8, "%#x" % 255
"%d" % "a"
"%s %s" % "a"
"%s" % (1, 2)
d|tojson, l|tojson, s|tojson, u|tojson, f|tojson, none_|tojson, big|tojson, (1, 2)|tojson, {1: 2, none: 3, true: 4, 1.5: 5}|tojson
d|tojson(indent=2), d|tojson(indent=0), empty|tojson(indent=2), {"a": []}|tojson(indent=4), d|tojson(indent="--"), l|tojson(separators=(",", ":")), d|tojson(sort_keys=true), u|tojson(ensure_ascii=true), d|tojson(false, 1)
"\u2028\x7f\x1f</script>'&/"|tojson
undefined_name|tojson
d.keys()|tojson
l|map("string")|tojson
[1e400, -1e400, 0.1, 100000000000000000000.0, 1e16, 1.5e-7]|tojson
" x "|trim, "xxaxx"|trim("x"), 5|trim, none_|trim
l|length, s|length, d|length, u|count, range(5)|length
n|length
l|map("string")|length
l|join, l|join("-"), s|join("."), rows|join(",", attribute="v"), [none, 1, "a"]|join(","), d|join("+"), names|join(n)
rows|map(attribute="n")|list, rows|map(attribute="t.u")|list|length, rows|map(attribute="t.u", default="-")|list, names|map("upper")|list, names|map("replace", "b", "x")|list, [[1, 2], [3]]|map("first")|list, [[1, 2], [3]]|map(attribute=0)|list
rows|map|list
rows|map("nofilter")|list
l|select|list, [0, 1, ""]|select|list, l|select("odd")|list, l|reject("odd")|list, l|select("gt", 1)|list, rows|selectattr("v", "equalto", 2)|map(attribute="n")|list, rows|rejectattr("t")|list|length, rows|selectattr("t", "defined")|list|length, rows|selectattr("t.u", "eq", "p")|list|length, names|select("in", ["Bob"])|list
l|select("notest")|list
(l|select("odd")) is sequence, (l|select("odd")) is iterable, not (l|select("gt", 100)), l|select("odd")|first, l|select("odd")|join(",")
undefined_name|default("x"), none_|default("x"), none_|default("x", true), ""|d("e", true), ""|d("e"), undefined_name|d, d.zz|default(5), z|default(1, boolean=true)
undefined_name.x|default("x")
s|upper, s|lower, s|title, s|capitalize, u|title, "don't {a} (b) <c> x-y"|title, 5|upper
s|replace("l", "L"), s|replace("l", "L", 1), 515|replace(5, 6), s|replace("o", "")
l|first, l|last, empty|first is defined, empty|last is defined, s|first, s|last, d|first, (1, 2)|last
l|list, s|list, d|list, range(3)|list, none_|list
d|items|list, d|dictsort, d|dictsort(true), {"b": 1, "a": 2}|dictsort(false, "value"), d|dictsort(reverse=true), undefined_name|items|list
l|items|list
l|dictsort
l|sort, l|sort(reverse=true), names|sort, names|sort(case_sensitive=true), rows|sort(attribute="v")|map(attribute="n")|list, rows|sort(attribute="v,n")|map(attribute="n")|list, "hello"|sort
[1, "a"]|sort
names|unique|list, names|unique(case_sensitive=true)|list, [1, 1, 2.0, 2, none, none]|unique|list, rows|unique(attribute="v")|list|length
rows|groupby("v")|length, (rows|groupby("v"))[0].grouper, (rows|groupby("v"))[1].list|length, rows|groupby("t.u", default="-")|map(attribute=0)|list
l|min, l|max, names|min, names|max, names|max(case_sensitive=true), rows|max(attribute="v"), empty|min is defined, [1.5, 2]|max
l|sum, rows|sum(attribute="v"), [0.5, 1]|sum, [1]|sum(start=10), empty|sum
["a"]|sum
l|reverse|list, s|reverse, d|items|list|reverse|list, u|reverse
range(7)|batch(3)|list, range(4)|batch(3, "-")|list, range(7)|slice(3)|list, range(7)|slice(3, "x")|list
2.5|round, 3.5|round, 2.675|round(2), 42.55|round(1, "floor"), 42.51|round(1, "ceil"), 5|round, 1234|round(-2), -2.5|round, 2.4|round|int, 7|round(2)
2|round(1, "up")
"42"|int, "42.7"|int, "x"|int, "x"|int(5), 3.9|int, "0x1f"|int(base=16), "ff"|int(0, 16), none_|int, true|int, " 12 "|int, "1_000"|int, "-3"|int, "1e3"|int, "0b11"|int(0, 2), "0x1f"|int(0, 0)
"1.5"|float, "x"|float, "x"|float(2.0), 3|float, none_|float, "1e3"|float, " 2 "|float
5|string, none_|string, l|string|length, 1.0|string, (5|string) + "x"
5|abs, -5|abs, -2.5|abs, true|abs
"a"|abs
lines|indent, lines|indent(2), lines|indent(2, true), lines|indent(2, blank=true), lines|indent("> "), lines|indent(width=1, first=true), ""|indent
5|indent
html|escape, html|e, html|safe, html|striptags, "a<b" ~ (html|e)|length, "<" + ("x"|safe), ("x"|safe) + "<", ("<"|safe) + "<"
"a b/c?d=é&f"|urlencode, {"a": "x y", "b/": 1}|urlencode, 5|urlencode
"the quick-brown fox"|wordcount, ""|wordcount, "don't é"|wordcount
"foo bar baz qux"|truncate(9), "foo bar baz qux"|truncate(9, true), "foo bar baz qux"|truncate(11), "foo bar baz qux"|truncate(11, false, "...", 0), "foobarbazqux"|truncate(5), u|truncate(6, true, "…", 0)
"%s, %s!"|format("a", 1), "%(x)s"|format(x=2), "%5.1f"|format(2.25)
"ab"|center(6) ~ "|", 123456|filesizeformat, 1|filesizeformat, 500|filesizeformat, 123456|filesizeformat(true), {"class": "x", "id": none_, "q": "<"}|xmlattr
[1, "a"]|pprint, s|pprint
d|attr("items") is callable, d|attr("b") is defined, s|attr("upper") is callable
5 is odd, 4 is even, 6 is divisibleby 3, 6 is divisibleby(4), s is string, n is number, f is number, t is number, n is integer, t is integer, f is float, n is float, t is boolean, n is boolean, d is mapping, l is mapping, l is sequence, d is sequence, s is iterable, n is iterable, n is sequence, none_ is none, t is true, n is true, z is false, t is sameas true, n is sameas 7
1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is ge 2, 1 is in [1], 1 is in l, "AB" is upper, "ab" is lower, "upper" is filter, "nope" is filter, "odd" is test, "nope" is test, range is callable, s is callable, undefined_name is undefined, d.zz is defined, s is not none, 3 is not odd, n is equalto 7, n is greaterthan 5, n is lessthan(5)
"a" is odd
range(3), range(1, 4), range(5, 0, -2), range(3)|list, range(0)|list, range(3)[1], range(10)[2:4]|list, 2 in range(3), range(2) == range(0, 2)
range(1.5)
range(1000000)
range()
dict(a=1, b=2), dict({"x": 1}, y=2), dict([("k", 1)]), {}|length, {"a": 1, "a": 2}, {1: "x", "1": "y"}[1], {(1, 2): 3}
{[1]: 2}
namespace(a=1).a, namespace(a=1).b is defined, namespace({"x": 2}).x
raise_exception("stop " ~ 1)
raise_exception()
strftime_now("%Y-%m-%d %H:%M:%S %j %a %A %b %B %p %I %y %U %w %% %f|%z|%Z|%e|%-d|%D|%F|%T|%s"[:60])
strftime_now("")
strftime_now()
s is
"abc
nosuchfilter|nosuchfilter
x is nosuchtest
(1
[1, 2
{"a" 1}
1 +
a b
1 = 2
{{ 1 }}
loop
caller is defined, varargs is defined, kwargs is defined
none.x is defined, true.x is defined
l is iterable and l is not string and l is not mapping
"a" if false else "b" if false else "c"
("a", "b")[1], [1, [2, [3]]][1][1][0], {"a": {"b": {"c": 1}}}.a.b.c
msgs|map(attribute="role")|join(","), msgs[-1].content, msgs[0]["role"], msgs|selectattr("role", "equalto", "user")|map(attribute="content")|first, (msgs|last).role, msgs[1:]|length
l.0, msgs.0.role, "abc".1
1_000, 0x1F, 0o17, 0b11, 1e3, 1.5E-3, 1_0.5
"é" in u, u.count("世"), "世" ~ u[6:8], u.split(" "), u|upper|length
"ab" < "abc", "Z" < "a", "é" > "z", "🦙" > "世"
[[1, 2], [3, 4]]|map("sum")|list, [[2, 1], [4, 3]]|map("sort")|map("first")|list, ["a b", "c"]|map("split")|list
["1", "2"]|map("int")|sum, [" a "]|map("trim")|list
"x".join(l|map("string")), "-".join(d), " ".join(names[1:])
not 1 == 2, not 1 in [2], not (1 in [1])
""" .strip("\n").split("\n")

_TEMPLATES = [
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ ',' if not loop.last }}{% else %}none{% endfor %}",
    "{% for i in [1,1,2] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}",
    "{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for i in 5 %}{% endfor %}",
    "{% for i in none_ %}{% endfor %}",
    "{% for i in undefined_name %}x{% else %}e{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in l %}{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if z %}{% set n = 99 %}{% endif %}{{ n }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e) = [3, 4] %}{{ c }}{{ e }}",
    "{% set a, b = [1] %}",
    "{% set ns = namespace() %}{% set ns.x = 1 %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns }}",
    "{% set q = 1 %}{% set q.x = 2 %}",
    "{% set x %}a{{ 1 }}{% set inner = 5 %}{% endset %}{{ x }}{{ inner is defined }}{% set y | upper | trim %} abc {% endset %}[{{ y }}]",
    "{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=9) }}|{{ m() }}|{{ m(b=1, a=0) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, zz=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(x) %}<{{ caller(x, 1) }}>{% endmacro %}{% call(a, b) m(5) %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ later }}{% endmacro %}{% set later = 3 %}{{ f() }}",
    "{% set x = 1 %}{% macro f() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}",
    "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% macro f(x) %}{% for i in x %}{% if i is iterable and i is not string %}({{ f(i) }}){% else %}{{ i }}{% endif %}{% endfor %}{% endmacro %}{{ f([1, [2, [3, 4]], 5]) }}",
    "{{ f is defined }}{% macro f() %}{% endmacro %}{{ f is defined }}{{ f is callable }}{{ f.name }}{{ f }}",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}{% filter replace('a', 'b')|upper %}xa{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %}{{ i }};{% endfor %}",
    "{% break %}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.current }}",
    "{% if t %}a{% elif n %}b{% else %}c{% endif %}{% if z %}a{% elif n %}b{% else %}c{% endif %}{% if z %}a{% endif %}",
    "{% block body %}x{{ n }}{% endblock %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}{{ 1 }}{%- raw -%}  y  {%- endraw -%}  z",
    "a {#- c -#} b{# multi\nline #}c {# x #}\nd",
    "  {%- if t -%}  x  {%- endif -%}  y\n  {% if t %}\n  z\n  {% endif %}\nw",
    "\t{%+ if t %}x{% endif %}\n  {%- set a = 1 +%}\nb",
    "a\n  {{ n }}\n  {{- n }}\n{{ n -}}\n  b",
    "a\r\nb\rc\n\n",
    "{% if t %}\n\n  x\n{% endif %}\n\n\ny\n\n",
    "{{ '{{' }}{{ \"%}\" }}{% set x = '}}' %}{{ x }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {}} }}",
    "{{ 1 }", "{% if t %}", "{% endif %}", "{% if t %}{% endfor %}", "{{ }}", "{% %}", "{% nope %}", "{# open", "{% raw %}x", "{{ 'x }}",
    "{% for i in l recursive %}{% endfor %}x"[:0] + "{% for %}{% endfor %}", "{% set %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% macro 1() %}{% endmacro %}",
    "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ f(**d, *l) }}", "{% call 5 %}{% endcall %}", "{{ x is odd is even }}",
    "{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*l) }}{{ f(**{'a': 1, 'b': 2, 'c': 3}) }}{{ f(1, *[2], **{'c': 3}) }}",
    "{% print 1, 2 %}",
    "{% set x = l|map('string')|list %}{{ x }}{% set g = l|select('odd') %}{% for i in g %}{{ i }}{% endfor %}{% for i in g %}{{ i }}{% endfor %}",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    "{% if undefined_name|nosuch %}{% endif %}", "{% if z %}{{ n|nosuch }}{% endif %}ok", "{{ n|nosuch }}",
    "{% for m in msgs %}{{ m.role }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if loop.nextitem }}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in msgs if not ns.found %}{% set ns.found = true %}{{ m.role }}{% endfor %}",
    "{%- set x = [] -%}{%- for m in msgs -%}{%- set x = x + [m.role] -%}{%- endfor -%}{{ x }}",
    "{{ msgs[0]|tojson|replace('\"', \"'\") }}{{ msgs|tojson(indent=2)|indent(3, true) }}",
    "{% set a %}  {% endset %}{{ a|length }}{% if a %}y{% endif %}",
    "{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}{{ loop is defined }}",
    "{% for i in [] %}{% else %}{{ loop is defined }}{% endfor %}",
    "{% set x = 5 %}{% with %}{% set x = 6 %}{{ x }}{% endwith %}{{ x }}",
    "{% autoescape false %}{{ html }}{% endautoescape %}",
]

TEMPLATES = ["{{ " + e + " }}" for e in _EXPRESSIONS] + _TEMPLATES
