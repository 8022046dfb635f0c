"""Validates regular expressions for RE2: Envoy rejects every route of a port for one expression that it cannot compile.

The module is a small parser of RE2's grammar, which is narrower than Python's (no look-around, no back-references) and
in places wider. As in Envoy, the expression works on bytes, not characters. `regex_flaw` returns what is wrong, "" if
the expression is valid.
"""

from __future__ import annotations

import re

from weft.api.syntax import words

MOST_CHARACTERS = 1_024  # Istio's limit
MOST_REPETITIONS = 1_000  # RE2's own limit, also for the product of nested repetitions
MOST_STEPS = 32_768  # of the compiled program: `re2.max_program_size.error_level` in Envoy's bootstrap

# The grammar is compiled at its first use and not at import, because that takes milliseconds.
_SYNTAX = r"""
      (?P<quoted>\\Q(?P<literal>.*?)(?:\\E|\Z))
    | (?P<escape>\\)
    | (?P<set>\[)
    | (?P<flags>\(\?[imsU]*(?:-[imsU]+)?\))
    | (?P<open>\((?:\?(?:P?<[A-Za-z0-9_]+>|(?P<uncaptured>[imsU]*(?:-[imsU]+)?:))|(?!\?)))
    | (?P<close>\))
    | (?P<either>\|)
    | (?P<repeat>(?:[*+?]|\{(?P<least>0|[1-9][0-9]*)(?:,(?P<most>0|[1-9][0-9]*)?)?\})\??)
    | (?P<plain>[^(])
    """
_CHARACTER = re.compile(
    r"\\(?:x\{(?P<braced>[0-9A-Fa-f]+)\}|x(?P<hex>[0-9A-Fa-f]{2})|(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})"
    r"|(?P<control>[afnrtv])|(?P<sign>[\x00-\x7f](?<![A-Za-z0-9])))|(?P<itself>[^\\])",
    re.DOTALL,
)
_PROPERTY = re.compile(r"\\[pP](?:\{\^?(?P<name>[^}]*)\}|(?P<letter>.))", re.DOTALL)
_POSIX = re.compile(r"\[:\^?(?P<name>.*?):\]", re.DOTALL)
_CONTROLS = {"a": 7, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_POSIX_NAMES = frozenset(
    words("""
    alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit
    """)
)
_PROPERTY_NAMES = frozenset(
    words("""
    Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
    Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee
    Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
    Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
    Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
    Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi
    Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani
    Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
    Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari New_Tai_Lue
    Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic
    Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene
    Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham
    SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham
    Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi
    Wancho Warang_Citi Yezidi Yi Zanabazar_Square
    """)
)
_SET_STEPS = 16  # steps of a character set: the largest count seen, since over bytes there are few ranges


def regex_flaw(text: str) -> str:
    if not text:
        return "it is empty"
    if len(text) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS} characters"
    try:
        steps = _Reader(text.encode("utf-8", "surrogatepass").decode("latin-1")).steps()
    except _Flaw as flaw:
        return str(flaw)
    return f"it is too large: about {steps} steps, and Envoy accepts {MOST_STEPS}" if steps > MOST_STEPS else ""


class _Flaw(Exception):
    pass


class _Group:
    """One pair of parentheses in an expression, or the whole expression, with the part of it that has been parsed so
    far."""

    def __init__(self, *, captures: bool) -> None:
        self.steps = 2 if captures else 0
        self.repetitions = 1  # the largest product of nested repetitions
        self.last: tuple[int, int] | None = None  # steps and repetitions of the part that a following `*` would repeat
        self.repeated = False  # whether the last part was a `*`, `+`, `?` or `{n,m}`

    def put(self, steps: int, repetitions: int = 1) -> None:
        self.steps += steps
        self.repetitions = max(self.repetitions, repetitions)
        self.last, self.repeated = (steps, repetitions), False


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = [_Group(captures=True)]

    def steps(self) -> int:
        """Parse the expression and return an estimate of the size of its compiled program, in steps; the estimate is
        never too low. Raises _Flaw if RE2 would reject the expression."""
        tokens = re.compile(_SYNTAX, re.VERBOSE | re.DOTALL)
        while self._at < len(self._text):
            token = tokens.match(self._text, self._at)
            if token is None:
                raise _Flaw(f"RE2 has no `{_shown(self._text[self._at :][:4])}` (look-around, conditions, comments)")
            self._at = token.end()
            self._take(token)
        if len(self._groups) > 1:
            raise _Flaw("missing )")
        return self._groups[0].steps + 4

    def _take(self, token: re.Match[str]) -> None:
        group = self._groups[-1]
        match token.lastgroup:
            case "quoted":
                for _ in token["literal"]:
                    group.put(1)
            case "escape":
                self._at -= 1
                group.put(self._escape())
            case "set":
                group.put(self._set())
            case "flags":
                group.repeated = False
            case "open":
                self._groups.append(_Group(captures=token["uncaptured"] is None))
            case "close":
                if len(self._groups) == 1:
                    raise _Flaw("unbalanced )")
                self._groups.pop()
                self._groups[-1].put(group.steps + 1, group.repetitions)
            case "either":
                group.steps += 1
                group.last, group.repeated = None, False
            case "repeat":
                self._repeat(group, token)
            case _:
                group.put(2 if token[0] == "." else 1)

    def _repeat(self, group: _Group, token: re.Match[str]) -> None:
        if group.last is None:
            raise _Flaw(f"nothing to repeat before `{token[0]}`")
        if group.repeated:
            what = "possessive" if token[0] == "+" else "repeating a repetition"
            raise _Flaw(f"RE2 has no `{self._text[token.start() - 1]}{token[0]}` ({what})")
        steps, repetitions = group.last
        least, most = 0, 1
        if token["least"]:
            least = int(token["least"][:9])
            most = int(token["most"][:9]) if token["most"] else least
            if max(least, most) > MOST_REPETITIONS:
                raise _Flaw(f"a repetition count is more than {MOST_REPETITIONS}")
            if most < least:
                raise _Flaw(f"`{token[0]}` has a maximum below its minimum")
        repetitions *= max(most, 1)
        if repetitions > MOST_REPETITIONS:
            raise _Flaw(f"nested repetitions multiply to {repetitions}, and RE2 accepts {MOST_REPETITIONS}")
        group.put(steps * most + most + 2, repetitions)
        group.steps -= steps
        group.repeated = True

    def _escape(self) -> int:
        if self._text[self._at + 1 : self._at + 2] in tuple("AbBzCdDsSwW"):
            self._at += 2
            return _SET_STEPS
        if self._property():
            return _SET_STEPS
        self._character()
        return 1

    def _set(self) -> int:
        negated = self._text.startswith("^", self._at)
        self._at += negated
        items, first = int(negated), True
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise _Flaw("missing ], unterminated set")
            first = False
            posix = _POSIX.match(self._text, self._at)
            if posix is not None:
                if posix["name"] not in _POSIX_NAMES:
                    raise _Flaw(f"RE2 has no `{_shown(posix[0])}`")
                self._at = posix.end()
                items += _SET_STEPS
            elif self._text[self._at : self._at + 2] in (r"\d", r"\D", r"\s", r"\S", r"\w", r"\W"):
                self._at += 2
                items += _SET_STEPS
            elif self._property():
                items += _SET_STEPS
            else:
                self._range()
                items += 2  # upper and lower case
        self._at += 1
        return items + 1

    def _range(self) -> None:
        start, low = self._at, self._character()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            if self._character() < low:
                raise _Flaw(f"bad range `{_shown(self._text[start : self._at])}`")

    def _property(self) -> bool:
        if self._text[self._at : self._at + 2] not in (r"\p", r"\P"):
            return False
        match = _PROPERTY.match(self._text, self._at)
        if match is None or (match["letter"] or match["name"]) not in _PROPERTY_NAMES:
            shown = _shown(match[0] if match else self._text[self._at : self._at + 4])
            raise _Flaw(f"RE2 has no `{shown}`; valid are, for example, \\pL, \\p{{Lu}} and \\p{{Greek}}")
        self._at = match.end()
        return True

    def _character(self) -> int:
        match = _CHARACTER.match(self._text, self._at)
        value = 256 if match is None else _value(match)
        if match is None or value > 255:
            wrong = match[0] if match else self._text[self._at : self._at + 2]
            if wrong == "\\":
                raise _Flaw("it ends with a backslash")
            why = " (back-references)" if wrong[1:2].isdigit() else ""
            raise _Flaw(f"RE2 has no `{_shown(wrong)}`{why}")
        self._at = match.end()
        return value


def _value(character: re.Match[str]) -> int:
    if character["braced"] or character["hex"]:
        return int((character["braced"] or character["hex"]).lstrip("0")[:8] or "0", 16)
    if character["octal"]:
        return int(character["octal"], 8)
    if character["control"]:
        return _CONTROLS[character["control"]]
    return ord(character["sign"] or character["itself"])


def _shown(piece: str) -> str:
    return piece.encode("latin-1").decode("utf-8", errors="replace")
