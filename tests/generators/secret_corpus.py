"""Made-up secrets of each known format, and innocents that look like them.

The secrets are put together when the tests run, so that nobody who scans the sources for secrets takes them for real ones.
"""

from __future__ import annotations

import random
import string

_LETTERS = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_URL_SAFE = _LETTERS + "-_"
_random = random.Random(6)


def made(length: int, alphabet: str = _LETTERS) -> str:
    """Return random characters, letters and digits among them."""
    return "".join(_random.choices(alphabet, k=length - 2)) + "a7"


def _pem(kind: str) -> str:
    body = "\n".join(made(64) for _ in range(4))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


TOKENS: dict[str, str] = {
    "AWS access key id": "AKIA" + made(16, string.ascii_uppercase + "234567").upper(),
    "AWS session key id": "ASIA" + made(16, string.ascii_uppercase + "234567").upper(),
    "Google API key": "AIza" + made(35, _URL_SAFE),
    "Google OAuth token": "ya29." + made(60, _URL_SAFE),
    "Azure client secret": "aB3" + "8Q~" + made(34),
    "GitHub personal token": "ghp" + "_" + made(36),
    "GitHub OAuth token": "gho" + "_" + made(36),
    "GitHub fine-grained token": "github" + "_pat_" + made(22) + "_" + made(59),
    "GitLab token": "glpat" + "-" + made(20, _URL_SAFE),
    "Hugging Face token": "hf" + "_" + made(34),
    "OpenAI project key": "sk" + "-proj-" + made(74, _URL_SAFE) + "T3BlbkFJ" + made(74, _URL_SAFE),
    "OpenAI key": "sk" + "-" + made(48),
    "Anthropic key": "sk" + "-ant-api03-" + made(93, _URL_SAFE) + "AA",
    "Weights & Biases key": "wandb" + "_v1_" + made(27) + "_" + made(49),
    "Slack bot token": "xoxb" + "-" + made(12, string.digits) + "-" + made(24),
    "Slack app token": "xapp" + "-1-" + made(40),
    "npm token": "npm" + "_" + made(36),
    "PyPI token": "pypi" + "-AgEIcHlwaS5vcmc" + made(120, _URL_SAFE),
    "Databricks token": "dapi" + made(32, _HEX),
    "Docker token": "dckr" + "_pat_" + made(27, _URL_SAFE),
    "NVIDIA key": "nvapi" + "-" + made(64, _URL_SAFE),
    "Vault token": "hvs" + "." + made(95, _URL_SAFE),
    "Stripe key": "sk" + "_live_" + made(24),
    "SendGrid key": "SG" + "." + made(22, _URL_SAFE) + "." + made(43, _URL_SAFE),
    "JSON web token": "eyJ" + made(30, _URL_SAFE) + ".eyJ" + made(60, _URL_SAFE) + "." + made(43, _URL_SAFE),
    "private key": _pem("RSA "),
    "private key of PKCS 8": _pem(""),
    "private key of OpenSSH": _pem("OPENSSH "),
}
"""Secrets that are known by their own format, wherever they stand."""

_AWS = made(40, _LETTERS + "/+")
_PLAIN = made(20)
_HEX_40 = made(40, _HEX)
_BASE_64 = made(86) + "=="

IN_CONTEXT: dict[str, tuple[str, str]] = {
    "AWS secret in the environment": (f"AWS_SECRET_ACCESS_KEY={_AWS}", _AWS),
    "AWS secret in a file": (f"aws_secret_access_key = {_AWS}", _AWS),
    "AWS keys in a store's URL": (f"could not list s3://minio:{_AWS}@bucket/jobs", _AWS),
    "basic authentication in a URL": (f"https://user:{_PLAIN}@git.example.org/x.git", _PLAIN),
    "a password with an at sign": (f"postgresql://user:{_PLAIN}@{_PLAIN}@db:5432/mlflow", _PLAIN),
    "a token as the user of a URL": (f"git clone https://{_PLAIN}@git.example.org/x.git", _PLAIN),
    "a presigned URL of S3": (f"https://b.s3.amazonaws.com/k?versionId=3&X-Amz-Signature={_HEX_40}&x=1", _HEX_40),
    "a signed URL of Google": (f"https://storage.googleapis.com/b/k?X-Goog-Signature={_HEX_40}", _HEX_40),
    "a shared access signature": (f"https://a.blob.core.windows.net/c/b?sv=2024-01-01&se=2027-01-01&sig={_PLAIN}%3D", _PLAIN),
    "a token in a query": (f"GET https://host/v1/data?token={_PLAIN}&page=2", _PLAIN),
    "a connection string": (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={_BASE_64};EndpointSuffix=x", _BASE_64[:86]),
    "a service bus": (f"Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey={_BASE_64}", _BASE_64[:86]),
    "a service account": (f'{{"type": "service_account", "private_key_id": "{_HEX_40}", "project_id": "p"}}', _HEX_40),
    "a bearer header": (f"Authorization: Bearer {_PLAIN}", _PLAIN),
    "a bearer alone": (f"sent with Bearer {_PLAIN}", _PLAIN),
    "a header of another kind": (f"-H 'Authorization: ApiKey {_PLAIN}'", _PLAIN),
    "an older key of Weights & Biases": (f"WANDB_API_KEY={_HEX_40}", _HEX_40),
    "wandb login": (f"wandb login --relogin {_HEX_40}", _HEX_40),
    "wandb.login": (f'wandb.login(key="{_HEX_40}")', _HEX_40),
    "netrc": (f"machine api.wandb.ai login user password {_HEX_40}", _HEX_40),
    "an option and its value": ("train.py --password hunter2 --lr 0.1", "hunter2"),
    "an option with an equals sign": ("train.py --api-key=hunter2", "hunter2"),
    "an override of Hydra": ("train.py logger.api_key=hunter2 model.lr=0.1", "hunter2"),
    "a variable": ("TOKEN=hunter2 python train.py", "hunter2"),
    "JSON": ('{"db": {"password": "correct horse battery"}}', "horse"),
    "JSON in JSON": ('"{\\"client_secret\\": \\"hunter2\\"}"', "hunter2"),
    "YAML": ("hf_token: hunter2xyz\nlr: 0.1", "hunter2"),
    "a dictionary": ("{'secret_key': 'hunter2', 'lr': 0.1}", "hunter2"),
    "a random value after the word key": (f"key={_PLAIN}", _PLAIN),
    "a key of a service by its name": (f"WANDB_KEY={_HEX_40} python train.py", _HEX_40),
    "a web hook of Slack": (f"https://hooks.slack.com/services/T0AAA/B0BBB/{_PLAIN}", _PLAIN),
}
"""A text, and the secret in it that only the text around tells to be one."""

IN_ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "a key of a service": (["--wandb-key", _HEX_40], _HEX_40),
    "a key of a service with an equals sign": ([f"--wandb-key={_HEX_40}"], _HEX_40),
    "a variable before the command": (["env", f"WANDB_KEY={_HEX_40}"], _HEX_40),
    "a variable in a command of a shell": (["sh", "-c", f"COMET_KEY={_HEX_40} train --wandb-key {_HEX_40}"], _HEX_40),
    "a service alone": (["--hf", _PLAIN], _PLAIN),
    "a name with a colon": (["key:", _PLAIN], _PLAIN),
    "a name with a colon in one argument": (["-H", f"x-key: {_HEX_40}"], _HEX_40),
    "an option auth": (["--auth", "xK9f2LmQ8vT4zz"], "xK9f2LmQ8vT4zz"),
    "an option pass": (["--pass", "xK9f2LmQ8vT4yy"], "xK9f2LmQ8vT4yy"),
    "an option key": (["--key", "xK9f2LmQ8vT4"], "xK9f2LmQ8vT4"),
    "a word in the middle": (["--loggerKeyValue2", "a", "--hf-token-read", "hunter2"], "hunter2"),
    "a key that looks like a path": (["--key", f"/{_AWS.replace('/', 'x')}"], _AWS.replace("/", "x")),
}
"""Arguments of a command, and the secret in them that only their names tell to be one."""

INNOCENTS: dict[str, str] = {
    "a commit": "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "a commit in a run of Weights & Biases": "wandb run 1x2y3z4a of commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "a UUID": "writer 123e4567-e89b-42d3-a456-426614174000",
    "a hash of a data set": "data_snapshot=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "a key of a cache": "cache_key=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "a path": "/mnt/data/imagenet/train/n01440764/n01440764_10026.JPEG",
    "a store": "s3://bucket/tachoscope/jobs/resnet-50/records",
    "a container of Azure": "abfss://container@account.dfs.core.windows.net/data/part-00001.parquet",
    "a repository over SSH": "git@github.com:org/repository.git and ssh://git@host/org/repository.git",
    "a port": "http://127.0.0.1:5000/api/2.0/mlflow?page=2&order=desc",
    "a version of an object": "https://bucket.s3.amazonaws.com/k?versionId=3HL4kqtJvjVBH40Nrjfkd",
    "an IPv6 address": "http://[::1]:8080/metrics",
    "a learning rate": "--lr 3e-4 --weight-decay 0.01 --betas 0.9 0.95",
    "counts of tokens": "max_tokens=4096 num_tokens: 1_000 tokens_per_second=123.4 token=17 max_new_tokens 5",
    "special tokens": "eos_token=</s> pad_token=[PAD] --mask-token <mask> bos_token='<s>'",
    "a tokenizer": "--tokenizer meta-llama/Llama-3.1-8B --token-budget 100",
    "heads": "num_key_value_heads=8 key_dim=64 sort_key=name monkey=banana keyboard=qwerty",
    "keys of tables and samples": "--primary-key id --sort-key name --csv-img-key filepath --key-value-cache paged --public-key a",
    "files of keys": "--key /etc/ssl/server-2024.pem --ssh-key ~/.ssh/id_ed25519 --auth ./auth.json",
    "numbers, flags and words like key": "--key 17 --pass 2 --use-token -v --author me --keyboard qwerty --bypass all --hf true",
    "a model after a service": "--hf meta-llama/Llama-3.1-8B-Instruct --wandb Qwen2-72B-Instruct-GPTQ-Int4",
    "a file that holds the secret": "--password-file /run/secrets/db --token_path=/var/token",
    "a secret that is another's": "password=${DB_PASSWORD} use_auth_token=True token=None",
    "words": "the secret of a good basic certificate is the key to authentication",
    "an image": "ghcr.io/org/train@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "a job": "slurm-1234567.batch attempt=2 RANK=3 node=gpu-a100-007",
    "a run of MLflow": "mlflow run d1fd861dce73404791ef80ba60bf66b6 at sqlite:////home/user/mlflow.db",
    "an option of torchrun": "torchrun --nproc-per-node=8 --rdzv-endpoint=host:29500 --rdzv-id=job_7 train.py",
}
"""Texts that must stay as they are."""

HOSTILE = (
    "a",
    "a.-",
    "://",
    "://a:",
    "://a:@",
    "https://",
    '"',
    "\\",
    'a="',
    "a='",
    "-----BEGIN PRIVATE KEY-----",
    "login ",
    "wandb key ",
    "eyJaaaaaaaa.",
    "Bearer ",
    "= ",
    "a=",
    "--a ",
    "a:",
    "authorization:",
    "@",
    "1Q~",
    "xoxb.",
    " ",
    'key=\\"',
    "?sig",
    "&a",
    "password=",
    "sk-",
    "ghp_",
    "AKIAA",
    "_-",
    "token token=",
    "aA",
    "login a password ",
)
"""Pieces which, repeated, make patterns that go back and forth take hours."""

OF_COMMANDS: dict[str, tuple[list[str], str]] = {
    "curl -u": (["curl", "-sS", "-u", "bob:hunter2", "https://host/x"], "hunter2"),
    "curl -uUSER": (["curl", "-ubob:hunter2", "https://host/x"], "hunter2"),
    "curl --user=": (["curl", "--user=bob:hunter2", "https://host/x"], "hunter2"),
    "curl with a cookie": (["curl", "-b", "session=hunter2", "https://host/x"], "hunter2"),
    "curl with a header": (["curl", "-H", "X-Api-Key: hunter2", "https://host/x"], "hunter2"),
    "curl within a shell": (["sh", "-c", "nvidia-smi && curl -u bob:hunter2 https://host/x"], "hunter2"),
    "HTTPie": (["http", "-a", "bob:hunter2", "host/x"], "hunter2"),
    "mysql -pX": (["mysql", "-h", "db", "-uroot", "-phunter2", "runs"], "hunter2"),
    "mysqldump in a pipe": (["bash", "-c", "mysqldump -phunter2 runs | gzip > runs.gz"], "hunter2"),
    "sshpass -p": (["sshpass", "-p", "hunter2", "ssh", "-p", "2222", "host"], "hunter2"),
    "sshpass -pX": (["sshpass", "-phunter2", "scp", "a", "host:"], "hunter2"),
    "docker login -p": (["docker", "login", "-u", "bob", "-p", "hunter2", "ghcr.io"], "hunter2"),
    "skopeo": (["skopeo", "copy", "--src-creds", "bob:hunter2", "docker://a", "dir:b"], "hunter2"),
    "redis-cli": (["redis-cli", "-h", "cache", "-a", "hunter2", "ping"], "hunter2"),
    "mongosh": (["mongosh", "-u", "bob", "-p", "hunter2", "runs"], "hunter2"),
    "ldapsearch": (["ldapsearch", "-D", "cn=bob", "-w", "hunter2"], "hunter2"),
    "openssl": (["openssl", "enc", "-aes-256-cbc", "-pass", "pass:hunter2"], "hunter2"),
    "zip": (["zip", "-P", "hunter2", "runs.zip", "runs"], "hunter2"),
    "7z": (["7z", "x", "-phunter2", "runs.7z"], "hunter2"),
    "smbclient": (["smbclient", "//host/data", "-U", "bob%hunter2"], "hunter2"),
    "az login": (["az", "login", "-u", "bob", "-p", "hunter2"], "hunter2"),
    "wandb login": (["wandb", "login", _HEX_40], _HEX_40),
    "vault login": (["vault", "login", "hunter2hunter2"], "hunter2hunter2"),
    "aws configure": (["aws", "configure", "set", "aws_secret_access_key", _AWS], _AWS),
    "kubectl": (["kubectl", "create", "secret", "generic", "db", "--from-literal=password=hunter2"], "hunter2"),
    "a number": (["train.py", "--db-password", "12345678"], "12345678"),
    "a nested override": (["train.py", "+logger.auth.password=hunter2"], "hunter2"),
    "Telegram": (["notify", "https://api.telegram.org/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage"], "AAHdqTcv"),
    "Teams": (["notify", "https://acme.webhook.office.com/webhookb2/4b5f@7c/IncomingWebhook/8d9e/1a2b"], "8d9e"),
    "Discord": (["notify", "https://discord.com/api/webhooks/1234/hunter2-hunter2"], "hunter2"),
    "Feishu": (["notify", "https://open.feishu.cn/open-apis/bot/v2/hook/hunter2-hunter2"], "hunter2"),
    "Zapier": (["notify", "https://hooks.zapier.com/hooks/catch/123/hunter2/"], "hunter2"),
}
"""Commands as users type them, and the secret in them that only the program's own options tell to be one."""

HYPERPARAMETERS: dict[str, tuple[dict[str, object], str]] = {
    "a number": ({"password": 12345678}, "12345678"),
    "a number with a point": ({"api_key": 1234.5678}, "1234.5678"),
    "nested": ({"db": {"password": "hunter2"}}, "hunter2"),
    "below a name": ({"password": {"value": "hunter2"}}, "hunter2"),
    "a number below a name": ({"credentials": {"pin": 12345678}}, "12345678"),
    "in a list": ({"api_keys": {"secrets": ["hunter2", "b"]}}, "hunter2"),
    "in a list of mappings": ({"loggers": [{"name": "wandb", "api_key": "hunter2"}]}, "hunter2"),
    "in a set": ({"secrets": {"hunter2"}}, "hunter2"),
    "in an object's text": ({"config": type("C", (), {"__str__": lambda _: "C(password='hunter2')"})()}, "hunter2"),
    "in a URL": ({"tracking_uri": "https://bob:hunter2@mlflow.example.org"}, "hunter2"),
    "of a service": ({"hf_token": "hunter2"}, "hunter2"),
    "a connection string": ({"connection_string": "hunter2"}, "hunter2"),
    "pass": ({"db": {"pass": "hunter2"}}, "hunter2"),
    "auth, as a pair": ({"http_auth": ("hunter2", "b")}, "hunter2"),
    "a cookie": ({"sessionCookie": "sid=hunter2"}, "hunter2"),
    "JSON in a text": ({"extra": '{"client_secret": "hunter2"}'}, "hunter2"),
}
"""Hyper-parameters, and the secret in them."""

PLAIN_HYPERPARAMETERS: dict[str, object] = {
    "passes": "two",
    "author": "me",
    "bypass": "all",
    "compass": "north",
    "pass": 2,
    "auth": "none",
    "auth_type": "basic",
    "cookie": "/etc/cookies.txt",
    "max_tokens": 4096,
    "token": 17,
    "sort_key": "name",
}
"""Hyper-parameters that must stay as they are."""
