"""Takes names of tables and columns apart into words that tell of keys and links.

`OwnerUserId` is the thing (owner, user) with the mark "id"; the table `users` is the noun (user).
The head of a thing is its last word, so `OwnerUserId` speaks of users and `PostTypeId` does not
speak of posts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Noun = tuple[str, ...]
_Mark = Literal["id", "code", "name", ""]
_Match = Literal["same", "tail", "head", "short", ""]


def word_set(text: str) -> frozenset[str]:
    """Returns the words of a text, for lists of words that are looked up."""
    return frozenset(text.split())


_MARKS: dict[str, _Mark] = {
    **dict.fromkeys(word_set("id uuid guid key pk fk sk oid rowid identifier"), "id"),
    **dict.fromkeys(word_set("code no nr num number ref cd symbol slug"), "code"),
    **dict.fromkeys(word_set("name nm"), "name"),
}
_LEADING_MARKS = word_set("id uuid guid pk fk sk")
_TABLE_PREFIXES = word_set("tbl tb dim fact fct stg raw src dbo public main vw")
_WRITTEN_SHORT = {
    "acct": "account", "addr": "address", "cat": "category", "cust": "customer", "dept": "department",
    "emp": "employee", "loc": "location", "mgr": "manager", "org": "organization", "prod": "product",
}  # fmt: skip

# Words that measure or count: such a column is neither a key nor a link, however unique it is.
_MEASURES = word_set(
    "price amount cost total subtotal sum qty quantity count lat latitude lng lon long longitude alt "
    "altitude elevation score rating age height weight width length depth size area volume rate ratio "
    "percent percentage pct share value balance salary wage income revenue profit budget tax fee discount "
    "points rank ranking position pos place order sequence seq sort priority level grade round lap laps grid "
    "duration distance speed temperature temp pressure humidity mileage capacity population wins losses "
    "milliseconds seconds minutes hours days weeks months years bytes stock index version revision offset "
    "year month day week hour minute second date time datetime timestamp ts epoch quarter weekday decade "
    "season flag unnamed line row"
)
_NUMBERED = word_set("line row sequence seq position page version lap round rank step")
# Words that describe: equal values in two tables say nothing about a link.
_ATTRIBUTES = word_set(
    "status state country gender sex type kind category class group city town region province county "
    "continent language lang locale currency color colour size unit flag name title label description "
    "comment note text email phone address street zip postcode tz timezone tzone zone role mode method "
    "channel source medium result outcome reason brand make model genre nationality race religion answer "
    "active enabled valid yes format"
)
# Words for the row itself: a column so named is numbered anew in every table.
ROWS = word_set("row record rec index serial")
_ELSEWHERE = word_set("external ext legacy old remote foreign upstream")
_QUANTIFIERS = word_set(
    "is has had was were can should will did does num n nb no number count total avg mean max min"
)

# A link to another row of the same table, and the tables whose rows play a part by these names.
_SELF_PHRASES = {
    ("parent",), ("reply", "to"), ("in", "reply", "to"), ("report", "to"), ("duplicate", "of"),
    ("copy", "of"), ("child", "of"), ("part", "of"), ("superseded", "by"), ("replaced", "by"),
}  # fmt: skip
_SELF_ROLES = word_set("parent ancestor predecessor successor superior root previous prev next")
_CHIEFS = word_set("manager supervisor boss chief")
_STAFF = word_set("employee staff worker personnel user person")
_ROLES: dict[str, frozenset[str]] = {
    **dict.fromkeys(_CHIEFS | word_set("rep representative salesperson clerk cashier"), _STAFF),
    **dict.fromkeys(
        word_set(
            "owner author creator sender recipient receiver assignee reviewer approver reporter "
            "follower followee"
        ),
        word_set("user person"),
    ),
    **dict.fromkeys(
        word_set("origin orig dest destination departure arrival pickup dropoff"),
        word_set("airport station stop port terminal location"),
    ),
}

_IRREGULAR = {
    "people": "person", "children": "child", "men": "man", "women": "woman", "mice": "mouse",
    "indices": "index", "matrices": "matrix", "vertices": "vertex", "analyses": "analysis",
    "buses": "bus", "statuses": "status", "bonuses": "bonus", "campuses": "campus", "viruses": "virus",
    "caches": "cache", "shoes": "shoe", "quizzes": "quiz",
}  # fmt: skip
_UNCHANGED = word_set("series species news media data gas lens bias atlas canvas alias")
_IN_IE = word_set("movie cookie calorie rookie zombie pie tie")


@lru_cache(maxsize=8192)
def split(name: str) -> tuple[str, ...]:
    """Returns the words of a name in lower case: snake_case, CamelCase, kebab-case, spaces and digits part them."""
    spaced = []
    for before, char, after in zip(" " + name, name, name[1:] + " ", strict=False):
        starts_word = char.isupper() and (not before.isupper() or after.islower())
        if not char.isalnum():
            char = " "
        elif starts_word or char.isdigit() != before.isdigit():
            char = " " + char
        spaced.append(char)
    return tuple("".join(spaced).casefold().split())


@lru_cache(maxsize=8192)
def singular(word: str) -> str:
    """Returns the singular of an English noun by a few rules; `status` and `address` stay."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _UNCHANGED or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-1] if word[:-1] in _IN_IE else word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")):
        return word[:-2]
    return word[:-1]


def plural(word: str) -> str:
    """Returns a plural of an English noun of which `singular` gives the word back."""
    irregular = next((many for many, one in _IRREGULAR.items() if one == word), "")
    if irregular or singular(word) != word or word in _UNCHANGED:
        return irregular or word
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "zz")) else "s")


def _canonical(words: Iterable[str]) -> Noun:
    return tuple(_WRITTEN_SHORT.get(singular(word), singular(word)) for word in words)


@lru_cache(maxsize=8192)
def noun_of(table: str) -> Noun:
    """Returns the noun for a row of the table: (order, item) for `tbl_OrderItems`."""
    words = split(table)
    while len(words) > 1 and (words[0] in _TABLE_PREFIXES or len(words[0]) == 1):
        words = words[1:]
    return _canonical(words)


@dataclass(frozen=True)
class Words:
    """The name of a column taken apart."""

    all: tuple[str, ...]
    thing: Noun
    mark: _Mark

    @property
    def joined(self) -> str:
        return "".join(self.all)

    @property
    def is_measure(self) -> bool:
        """Whether the name says how much, how many, when, or the place in a list (`line_no`)."""
        if not self.thing:
            return not self.mark
        measured = {"": _MEASURES, "code": _NUMBERED}.get(self.mark, frozenset())
        return self.thing[-1] in measured or self.is_counted

    @property
    def is_counted(self) -> bool:
        """Whether the name asks a yes-or-no question or for a number (`is_customer`, `num_users`)."""
        return self.mark != "id" and len(self.all) > 1 and self.all[0] in _QUANTIFIERS

    @property
    def is_done_by(self) -> bool:
        """Whether the name says by whom something was done (`created_by`)."""
        return self.all[-1:] == ("by",) and len(self.all) > 1 and self.all[-2].endswith("ed")

    @property
    def is_from_elsewhere(self) -> bool:
        """Whether the name says that the number is that of another system (`legacy_customer_id`)."""
        return not _ELSEWHERE.isdisjoint(self.all)

    @property
    def is_plural(self) -> bool:
        return not self.mark and bool(self.all) and singular(self.all[-1]) != self.all[-1]

    @property
    def is_attribute(self) -> bool:
        """Whether the name describes a row rather than names another one."""
        return self.mark == "name" or any(word in _ATTRIBUTES for word in self.thing)

    @property
    def is_generic(self) -> bool:
        """Whether many tables have a column of this name that means another thing in each."""
        if not self.thing or self.is_measure or self.mark == "name" or self.thing[-1] in ROWS:
            return True
        return not self.mark and self.is_attribute


def take_apart(name: str, nouns: Iterable[Noun] = ()) -> Words:
    """Takes the name of a column apart; `nouns` are those of the tables, so that `userid` is user + id."""
    known = {word for noun in nouns for word in ("".join(noun), *noun[-1:])} | _ROLES.keys() | _SELF_ROLES
    words: list[str] = []
    for word in split(name):
        stems = {end: word.removesuffix(end) for end in ("id", "no", "key", "code") if word.endswith(end)}
        glued = [(stem, end) for end, stem in stems.items() if _canonical((stem,))[0] in known]
        words += glued[0] if glued else (word,)
    thing, mark = _without_mark(tuple(word for word in words if not word.isdigit()))
    return Words(tuple(words), _canonical(thing), mark)


def _without_mark(words: tuple[str, ...]) -> tuple[tuple[str, ...], _Mark]:
    """Returns the thing and its mark, found at the end, in front (`id_team`) or inside (`team_id_home`)."""
    if words and words[-1] in _MARKS:
        mark = _MARKS[words[-1]]
        while words and words[-1] in _MARKS:
            words = words[:-1]
        return words, mark
    if len(words) > 1 and words[0] in _LEADING_MARKS:
        return words[1:], "id"
    if "id" in words[1:] and words[-1] not in _MEASURES:
        return words[: words.index("id")], "id"
    return words, ""


def match(thing: Noun, noun: Noun) -> _Match:
    """Returns how a thing names a table: the same, with more words before it, by its head alone, or shortened."""
    if not thing or not noun:
        return ""
    if "".join(thing) == "".join(noun):
        return "same"
    if thing[-len(noun) :] == noun:
        return "tail"
    if noun[-len(thing) :] == thing:
        return "head"
    # One word begins the other: `cust` for customer, `qualify` for qualifying.
    short, long = sorted((thing[0], noun[0]), key=len)
    is_short = len(thing) == len(noun) == 1 and len(short) >= 3 and long.startswith(short)
    return "short" if is_short else ""


def points_to_own_table(words: Words, noun: Noun) -> bool:
    """Whether the name speaks of another row of the same table: `parent_id`, `reply_to`, `manager_id`."""
    if words.thing in _SELF_PHRASES or tuple(map(singular, words.all)) in _SELF_PHRASES:
        return True
    if len(words.thing) != 1:
        return False
    return words.thing[0] in _SELF_ROLES or (words.thing[0] in _CHIEFS and bool(noun) and noun[-1] in _STAFF)


def plays_role_of(words: Words, noun: Noun) -> bool:
    """Whether rows of such a table go by this name: users by `owner_id`, airports by `origin_id`."""
    if not words.thing or not noun:
        return False
    return noun[-1] in (_STAFF if words.is_done_by else _ROLES.get(words.thing[-1], ()))
