"""Takes secrets out of text that will be stored or shown: environment, arguments, URLs, log lines.

Known formats are found anywhere; anything else by its context: the name before it, a header, a URL. What is of no known format and
stands in no such context (a bare hash) stays. Each pattern reads a text once: runs are taken whole and never given back (`++`).

The formats are those that their issuers publish, as gathered in https://github.com/Yelp/detect-secrets and in
https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml. They are wider here than there: what is cut, or of a newer
length, is taken out as well, since to hide too much costs less than to show a key.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tachoscope_core.command_secrets import hidden_parts, hidden_spans

HIDDEN = "***"
"""What stands in the place of a secret."""

_TOKENS = (
    r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}+",  # AWS access key id
    r"ABSK[A-Za-z0-9+/]{40,}+=*",  # AWS Bedrock
    r"AIza[\w-]{30,}+",  # Google API key
    r"ya29\.[\w-]{20,}+",  # Google OAuth
    r"GOCSPX-[\w-]{20,}+",
    r"[\w~.-]{3}\dQ~[\w~.-]{20,}+",  # Azure client secret
    r"gh[pousr]_[A-Za-z0-9]{30,}+",  # GitHub
    r"github_pat_\w{40,}+",
    r"gl(?:pat|dt|ptt|rt|cbt|soat)-[\w.-]{16,}+",  # GitLab
    r"(?:hf|api_org)_[A-Za-z0-9]{28,}+",  # Hugging Face
    r"sk-(?:ant|proj|svcacct|admin|or)-[\w-]{16,}+",  # Anthropic, OpenAI, OpenRouter
    r"sk-[A-Za-z0-9]{32,}+",  # OpenAI, DeepSeek
    r"wandb_v\d_\w{40,}+",  # Weights & Biases; the older 40 hexadecimal digits by their context only
    r"xox[a-z](?:\.xox[a-z])?-[\w-]{10,}+",  # Slack
    r"xapp-[\w-]{10,}+",
    r"npm_[A-Za-z0-9]{30,}+",
    r"pypi-[\w-]{50,}+",
    r"dapi[0-9a-f]{28,}+(?:-\d)?",  # Databricks
    r"dckr_(?:pat|oat)_[\w-]{20,}+",  # Docker
    r"do[opr]_v1_[0-9a-f]{40,}+",  # DigitalOcean
    r"gsk_[A-Za-z0-9]{40,}+",  # Groq
    r"nvapi-[\w-]{40,}+",  # NVIDIA
    r"r8_[A-Za-z0-9]{30,}+",  # Replicate
    r"hv[sb]\.[\w-]{20,}+",  # HashiCorp Vault
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+",  # Stripe
    r"SG\.[\w-]{16,}+\.[\w-]{16,}+",  # SendGrid
    r"eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)*+",  # JSON web token
)
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})")
_PRIVATE_KEY = re.compile(r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END[A-Z0-9 ]{0,60}-----|\Z)", re.DOTALL)
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/bot"
    r"|webhook\.office\.com/webhookb2/|hooks\.zapier\.com/hooks/catch/|/open-apis/bot/v\d/hook/|maker\.ifttt\.com/trigger/\w++/with/key/"
    r"|events\.pagerduty\.com/integration/|outlook\.office(?:365)?\.com/webhook/)[\w@:/-]++"
)
_WANDB_KEY = re.compile(r"(?i)(wandb.{0,30}(?:login|key|password)\W[^0-9a-f\n]{0,20})[0-9a-f]{40}(?![0-9a-f])")
_NETRC = re.compile(r"(\blogin\s{1,9}\S{1,200}\s{1,9}password\s{1,9})\S++")
_HEADER = re.compile(r"(?i)(?<![a-z])((?:bearer|basic)\s{1,4})[\w.~+/=-]{12,}+")

_USER_AND_PASSWORD = re.compile(r"[^\s/?#@:\[\"']*+:(?!\d{1,5}(?:[/?#\s\"']|$))[^\s@\"']*+@(?:[^\s@/\"']*+@)*+")
"""At the beginning of what follows `://`. After the colon digits up to the path are a port; a password may hold a slash."""
_USER = re.compile(r"[^\s/?#@:\[\"']++@")
"""Of a web page there is no user without a password: it is a token. Elsewhere it may be a container or an account."""
_QUERY = re.compile(r"(?i)([?&](?:[\w-]*(?:sig|signature|credential|security-token|accesskeyid)|code|key)=)[^\s&#\"'<>]++")

_NAME = re.compile(r"(?<![\w.-])([\w.-]++)\\?[\"']?[ \t]{0,3}(?:=>|[:=])[ \t]{0,3}")
_OPTION = re.compile(r"(?<!\S)--?([A-Za-z][\w.-]*+)[ \t]++(?!-)")
_VALUE = re.compile(r"""(\\"(?:[^"\\]|\\[^"])*+\\?"|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[^\s"'&;]++)""", re.DOTALL)
_AUTHORIZATION = re.compile(
    r"""(?i)(?<![a-z])((?:proxy-)?authorization\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?)(?!\s|\\?["'])(?:[^\n"'\\]|\\(?!["']))+"""
)
"""Not possessive (`++`): Python 3.11.2 then goes on behind the closing quote."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_STRONG = re.compile(r".*(?:password|passwd|apikey)|pwd|passphrase|passcode|secrets?|credentials?|jwt|authorization|sas")
_SERVICES = re.compile(r"wandb|hf|huggingface|openai|anthropic|mlflow|comet|neptune|clearml|github|gitlab|aws|azure|ngc|slack")
_STRONG_KEYS = re.compile(rf"api|access|account|private|secret|auth|encryption|shared|signing|master|license|{_SERVICES.pattern}")
_ANNOUNCES = re.compile(r".*(?:password|passwd|apikey)|key|token|secrets?|pass|pwd|passphrase|auth|credentials?")
"""In a command line a name with such a word announces a secret, wherever in the name it stands."""
_KEY_USES = re.compile(
    r"primary|foreign|public|sort|order|group|partition|cache|index|lookup|dict|map|hash|join|row|column|field|item|batch|feature"
    r"|image|img|audio|video|text|caption|label|class|input|output|target|prompt|question|answer|response|metric|monitor"
)
"""Before `key`: it is one of a table or of a sample."""
_TOKEN_USES = re.compile(
    r"pad|eos|bos|unk|sep|cls|mask|stop|special|image|audio|video|begin|start|end|next|per|by|prompt|first|last"
)
"""Before `token`: it is one of a text."""
_HARMLESS_ENDS = re.compile(r"file|path|dir|folder|name|ids?|type|len|length|size|limit|count")
_WEAK = re.compile(r"key|auth|pass|pat|signature|sig|cookie")
_FIELDS = re.compile(r"(?!bypass|compass)\w*pass|auth|cookie")
_PLAIN = re.compile(r"[\d.,eE+-]*|(?i:true|false|none|null|yes|no|on|off|auto)|[<\[{(].*|\*+|\$\{?\w+\}?", re.DOTALL)
_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LONGEST_NAME = 100
_JUDGED_LENGTH = 256
_RANDOM_LENGTH = 16
_RANDOM_BITS = 3.0
"""Bits of entropy for each character, from which on a value of letters and digits is taken for random; words have fewer."""


def redact(text: str) -> str:
    """Return the text with `***` for each secret in it; the time is linear in the length."""
    return _redact(text, _is_secret)


def _redact(text: str, is_secret: Callable[[str, str], bool]) -> str:
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    if "://" in text:
        text = _without_users(text)
        text = _QUERY.sub(rf"\1{HIDDEN}", text)
    text = _WEBHOOK.sub(rf"\1{HIDDEN}", text)
    text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _WANDB_KEY.sub(rf"\1{HIDDEN}", text)
    text = _NETRC.sub(rf"\1{HIDDEN}", text)
    text = _TOKEN.sub(HIDDEN, text)
    return _hide_named(_hide_named(text, _NAME, is_secret), _OPTION, is_secret)


def _without_users(text: str) -> str:
    first, *rest = text.split("://")  # each part is looked at from its beginning only, so that the time stays linear
    shown, before = [first], first
    for part in rest:
        found = _USER_AND_PASSWORD.match(part) or (_USER.match(part) if before.endswith(("http", "https")) else None)
        shown.append(f"{HIDDEN}@{part[found.end() :]}" if found else part)
        before = part
    return "://".join(shown)


def redact_value(name: str, value: str) -> str:
    """Return a value without secrets, of which its name may say that it is one as a whole."""
    return HIDDEN if value and _is_secret_field(name, value) else redact(value)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command, secrets hidden: those of known formats, and those that an option or a name announces.

    Here a name needs less to announce one than in other text: people do pass keys, and to hide one value too many costs little.
    """
    shown: list[str] = []
    option = ""
    hidden = hidden_parts(arguments)
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if index in hidden:
            shown.append(argument[: hidden[index]] + HIDDEN)
        elif option and not argument.startswith("--"):
            shown.append(_redact_argument(option, argument))
        elif equals and re.fullmatch(r"[\w.+-]+", name):
            shown.append(f"{name}={_redact_argument(name, value)}")
        else:
            shown.append(_redact(_without_command_secrets(argument), _is_secret_argument))
        announces = re.fullmatch(r"--?[A-Za-z][\w.-]*|[A-Za-z][\w.-]*:", argument) or (
            re.fullmatch(r"[A-Za-z]\w*_\w+", argument) and _is_secret(argument, "x")  # aws configure set NAME VALUE
        )
        option = argument.strip("-:") if announces else ""
    return shown


def _without_command_secrets(text: str) -> str:
    """Return shell text without the secrets that known programs take."""
    if " " not in text:
        return text
    shown, done = [], 0
    for begin, end in hidden_spans(text):
        shown += [text[done:begin], HIDDEN]
        done = end
    return "".join([*shown, text[done:]])


def names_secret(name: str) -> bool:
    """Return whether what has this name is a secret, whatever it looks like."""
    return _is_secret_field(name, "x")


def _redact_argument(name: str, value: str) -> str:
    return HIDDEN if value and _is_secret_argument(name, value) else _redact(_without_command_secrets(value), _is_secret_argument)


_RECORDED = re.compile(
    r"(?:SLURM|TORCHELASTIC|NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|GLOO|FI|UCX)_\w+|(?:LOCAL_)?WORLD_SIZE|(?:LOCAL_|GROUP_)?RANK"
    r"|MASTER_ADDR|MASTER_PORT|(?:CUDA|NVIDIA)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG"
    r"|(?:OMP|MKL)_NUM_THREADS|PYTORCH_(?:CUDA_)?ALLOC_CONF|PYTHONHASHSEED|TOKENIZERS_PARALLELISM"
)


def redact_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may be recorded, sorted, secrets in their values hidden; all others are left out, name and all."""
    return {name: redact_value(name, value) for name, value in sorted(environ.items()) if _RECORDED.fullmatch(name)}


def _hide_named(text: str, names: re.Pattern[str], is_secret: Callable[[str, str], bool]) -> str:
    shown, done = [], 0
    for found in names.finditer(text):
        begin = found.end()
        if begin < done:  # within a value that is hidden
            continue
        # Judged by its beginning, so that the time stays linear where names and values are nested.
        start = _VALUE.match(text, begin, begin + _JUDGED_LENGTH)
        if start is None or not is_secret(found.group(1), start.group().strip("\\\"'")):
            continue
        value = _VALUE.match(text, begin) or start
        quote = re.match(r"\\?[\"']", value.group())
        ends = quote.group() if quote else ""
        shown += [text[done:begin], ends, HIDDEN, ends if value.group().endswith(ends) else ""]
        done = value.end()
    return "".join([*shown, text[done:]])


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret, by its name or, if that says little, its form."""
    words = _words_of(name)
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "id" and before == "key" and {"access", "private"} & set(words):
        return True
    if _HARMLESS_ENDS.fullmatch(last):
        return False
    if _STRONG.fullmatch(last):
        return not _is_reference(value)
    if (last == "key" and _STRONG_KEYS.fullmatch(before)) or (last == "string" and before == "connection"):
        return not _is_reference(value)
    if last == "token" and not _TOKEN_USES.fullmatch(before):
        return not _PLAIN.fullmatch(value) and not _is_reference(value)
    if _WEAK.fullmatch(last):
        return not _HEXADECIMAL.fullmatch(value) and _looks_random(value) and not _is_path(value)
    return False


def _is_secret_field(name: str, value: str) -> bool:
    """Return whether a field's value is a secret: in text `pass: ok` may be prose, as a field's name it is not."""
    if _is_secret(name, value):
        return True
    words = _words_of(name)
    return bool(words) and _FIELDS.fullmatch(words[-1]) is not None and not _is_plain_argument(value)


def _is_secret_argument(name: str, value: str) -> bool:
    """Return whether an argument's value is a secret: by its name alone, unless it is plainly harmless."""
    if re.fullmatch(r"-[A-Za-z]", value):  # the next option, after one that is a flag
        return False
    if _is_secret(name, value):
        return True
    words = _words_of(name)
    if len(words) == 1 and _SERVICES.fullmatch(words[0]):
        return any(map(_looks_random, re.findall(r"[A-Za-z0-9]+", value)))
    if not words or _HARMLESS_ENDS.fullmatch(words[-1]) or _is_plain_argument(value):
        return False
    return any(_ANNOUNCES.fullmatch(word) and not _is_other_use(words, at) for at, word in enumerate(words))


def _is_other_use(words: list[str], at: int) -> bool:
    """Return whether a word has another meaning, such as `key` in `sort_key` and `key_value_heads`."""
    before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
    if words[at] == "key":
        return after == "value" or _KEY_USES.fullmatch(before) is not None
    return words[at] == "token" and _TOKEN_USES.fullmatch(before) is not None


def _is_plain_argument(value: str) -> bool:
    """Return whether the value is a number, boolean, placeholder or file path."""
    if _PLAIN.fullmatch(value) or _is_reference(value) or re.fullmatch(r"[\d_]+", value):
        return True
    return _is_path(value)


def _is_path(value: str) -> bool:
    """Return whether the value is a path and not a secret: base 64 may begin with a slash too."""
    return value.startswith(("/", "./", "../", "~")) and not any(map(_looks_random, re.split(r"[/.]", value)))


def _words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without the digits at its end."""
    words = [word.lower() for word in _WORDS.findall(name[-_LONGEST_NAME:])]
    while words and words[-1].isdigit():
        words.pop()
    return words


def _is_reference(value: str) -> bool:
    """Return whether the value only refers to a secret."""
    return value.lower() in {"true", "false", "none", "null", ""} or value.startswith(("${", "/run/secrets/", "/var/run/secrets/"))


def _looks_random(value: str) -> bool:
    if len(value) < _RANDOM_LENGTH or not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    if value.count("/") > len(value) // 8 or " " in value:  # a path, a sentence
        return False
    counts = Counter(value[:256])
    length = sum(counts.values())
    return -sum(count / length * math.log2(count / length) for count in counts.values()) >= _RANDOM_BITS
