"""Voices by language, and the scripts they read: a language code and a text go in, a voice or a refusal comes out.

The table is explicit: espeak-ng accepts almost any code, and spells out letters that it does not know, "Chinese letter,
Chinese letter". Scripts are Unicode's, by the names of the characters. Nothing here makes a sound.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from pramana.errors import InvalidInput, quote_text

MAX_TEXT_LENGTH = 20_000
"""Characters: far more than five minutes of speech."""


class CannotSpeak(InvalidInput, code="cannot_speak"):
    """The text would not be spoken as written."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of espeak-ng: the file that defines it, and the scripts it reads."""

    espeak_file: str
    writing_systems: tuple[str, ...]


def find_voice(language: str) -> Voice:
    """Return the voice for a language code, in any case, with `-` or `_` before the region.

    A region that is not in the table counts as an accent: `de-AT` is spoken as `de`.
    """
    code = language.strip().lower().replace("_", "-")
    base, _, region = code.partition("-")
    is_region = len(region) in {2, 3} and region.isalnum() and region.isascii()
    found = VOICE_BY_LANGUAGE.get(code) or (VOICE_BY_LANGUAGE.get(base) if is_region else None)
    if found:
        return found
    if base in UNSUPPORTED_LANGUAGES:
        raise CannotSpeak(f'no voice for "{base}": {UNSUPPORTED_LANGUAGES[base]}')
    known = ", ".join(sorted({code.partition("-")[0] for code in VOICE_BY_LANGUAGE}))
    raise CannotSpeak(f"no voice for language {quote_text(language)}; known are {known}")


def prepare_text(text: str, language: str) -> str:
    """Return the text as the language's voice receives it: composed, with single spaces."""
    voice = find_voice(language)
    if len(text) > MAX_TEXT_LENGTH:
        raise CannotSpeak(f"the text has {len(text):,} characters, and {MAX_TEXT_LENGTH:,} is the limit for speech")
    plain = " ".join("".join(_normalise_character(each) for each in unicodedata.normalize("NFC", text)).split())
    says_something = False
    for each in plain:
        category = unicodedata.category(each)
        if category in {"Cc", "Cs", "Co", "Cn"}:
            raise CannotSpeak(
                f"the text contains {_describe_character(each)}, which is not a character of any language"
            )
        if (category == "So" and each >= "\u2300") or "\U0001f3fb" <= each <= "\U0001f3ff":
            raise CannotSpeak(f"the text contains a symbol, {_describe_character(each)}, which cannot be spoken")
        if category[0] not in "LMN":
            continue
        script = find_writing_system(each)
        if script is not None and script not in voice.writing_systems:
            raise CannotSpeak(
                f'the voice for "{language}" reads {" and ".join(voice.writing_systems)} script, and the text contains '
                f"{script}, {_describe_character(each)}, which this voice cannot read"
            )
        says_something = says_something or category[0] != "M"
    if not says_something:
        raise CannotSpeak("the text contains nothing that can be spoken: no letter and no digit")
    return plain


@lru_cache(maxsize=4096)
def find_writing_system(character: str) -> str | None:
    """Return the script of a letter, mark or digit; None if all scripts share it.

    >>> find_writing_system("й"), find_writing_system("々"), find_writing_system("7")
    ('Cyrillic', 'Han', None)
    """
    first = unicodedata.name(character, "UNKNOWN").partition(" ")[0].partition("-")[0]
    if first in _SCRIPTLESS_NAME_WORDS or (unicodedata.category(character) == "No" and character < "\u2190"):
        return None
    return _SCRIPT_BY_NAME_WORD.get(first, first.capitalize())


_SCRIPTLESS_NAME_WORDS = frozenset(
    {"DIGIT", "COMBINING", "MODIFIER", "MICRO", "VARIATION", "VULGAR", "SUPERSCRIPT", "SUBSCRIPT"}
)
_SCRIPT_BY_NAME_WORD = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "EXTENDED": "Arabic",  # the digits of Persian and Urdu
    "FEMININE": "Latin",  # the small a and o of Spanish and Portuguese ordinals
    "MASCULINE": "Latin",
    "ROMAN": "Latin",
}


def _normalise_character(character: str) -> str:
    if "\uff01" <= character <= "\uff5e":
        return chr(ord(character) - 0xFEE0)  # full-width forms of ASCII
    if unicodedata.category(character) == "Cf" and character not in "\u200c\u200d":
        return ""  # controls display only; the two joiners affect reading
    return " " if character.isspace() else character


def _describe_character(character: str) -> str:
    name = unicodedata.name(character, "")
    return f'"{character}" ({name})' if name else f"U+{ord(character):04X}"


UNSUPPORTED_LANGUAGES = {
    "he": "espeak-ng leaves out the vowels of unpointed Hebrew: two words in five would be spoken without any",
    "th": "espeak-ng does not read the spelling of Thai",
    "my": "espeak-ng does not read the spelling of Burmese",
}
"""Languages that espeak-ng lists but cannot speak."""

_VOICE_FILES_BY_SCRIPTS: dict[tuple[str, ...], dict[str, str]] = {
    ("Latin",): {
        "af": "gmw/af",
        "az": "trk/az",
        "bs": "zls/bs",
        "ca": "roa/ca",
        "cs": "zlw/cs",
        "cy": "cel/cy",
        "da": "gmq/da",
        "de": "gmw/de",
        "en": "gmw/en-US",
        "en-au": "gmw/en",
        "en-gb": "gmw/en",
        "en-ie": "gmw/en",
        "en-in": "gmw/en",
        "en-nz": "gmw/en",
        "en-us": "gmw/en-US",
        "en-za": "gmw/en",
        "eo": "art/eo",
        "es": "roa/es",
        "es-419": "roa/es-419",
        "es-ar": "roa/es-419",
        "es-cl": "roa/es-419",
        "es-co": "roa/es-419",
        "es-es": "roa/es",
        "es-mx": "roa/es-419",
        "es-pe": "roa/es-419",
        "es-us": "roa/es-419",
        "et": "urj/et",
        "eu": "eu",
        "fi": "urj/fi",
        "fr": "roa/fr",
        "fr-be": "roa/fr-BE",
        "fr-ch": "roa/fr-CH",
        "fr-fr": "roa/fr",
        "ga": "cel/ga",
        "hr": "zls/hr",
        "hu": "urj/hu",
        "id": "poz/id",
        "is": "gmq/is",
        "it": "roa/it",
        "lb": "gmw/lb",
        "lt": "bat/lt",
        "lv": "bat/lv",
        "ms": "poz/ms",
        "mt": "sem/mt",
        "nb": "gmq/nb",
        "nl": "gmw/nl",
        "no": "gmq/nb",
        "pl": "zlw/pl",
        "pt": "roa/pt-BR",
        "pt-br": "roa/pt-BR",
        "pt-pt": "roa/pt",
        "ro": "roa/ro",
        "sk": "zlw/sk",
        "sl": "zls/sl",
        "sq": "ine/sq",
        "sv": "gmq/sv",
        "sw": "bnt/sw",
        "tr": "trk/tr",
        "uz": "trk/uz",
        "vi": "aav/vi",
    },
    ("Cyrillic",): {
        "be": "zle/be",
        "bg": "zls/bg",
        "kk": "trk/kk",
        "ky": "trk/ky",
        "mk": "zls/mk",
        "ru": "zle/ru",
        "uk": "zle/uk",
    },
    ("Cyrillic", "Latin"): {"sr": "zls/sr"},
    ("Greek",): {"el": "grk/el"},
    ("Armenian",): {"hy": "ine/hy"},
    ("Georgian",): {"ka": "ccs/ka"},
    ("Ethiopic",): {"am": "sem/am"},
    ("Arabic",): {"ar": "sem/ar", "fa": "ira/fa", "ur": "inc/ur"},
    ("Devanagari",): {"hi": "inc/hi", "mr": "inc/mr", "ne": "inc/ne"},
    ("Bengali",): {"as": "inc/as", "bn": "inc/bn"},
    ("Gujarati",): {"gu": "inc/gu"},
    ("Gurmukhi",): {"pa": "inc/pa"},
    ("Kannada",): {"kn": "dra/kn"},
    ("Malayalam",): {"ml": "dra/ml"},
    ("Oriya",): {"or": "inc/or"},
    ("Sinhala",): {"si": "inc/si"},
    ("Tamil",): {"ta": "dra/ta"},
    ("Telugu",): {"te": "dra/te"},
    ("Hangul",): {"ko": "ko"},
    ("Hiragana", "Katakana"): {"ja": "jpx/ja"},
    ("Han",): {
        "cmn": "sit/cmn",
        "yue": "sit/yue",
        "zh": "sit/cmn",
        "zh-cn": "sit/cmn",
        "zh-hans": "sit/cmn",
        "zh-hant": "sit/cmn",
        "zh-hk": "sit/yue",
        "zh-mo": "sit/yue",
        "zh-sg": "sit/cmn",
        "zh-tw": "sit/cmn",
    },
}
VOICE_BY_LANGUAGE = {
    code: Voice(file, scripts) for scripts, files in _VOICE_FILES_BY_SCRIPTS.items() for code, file in files.items()
}
"""By language code: Norwegian is spoken as Bokmål, Chinese as Mandarin, English and Portuguese as most speakers do."""
