"""What counts as a secret by its name or its form, and what does not."""

import pytest

from train_bench.core import secret_filter, software
from train_bench.errors import RequestError
from train_bench.plan import command

TOKENS = [
    "nvapi-SECRET",
    "hf_" + "aB3" * 11,
    "ghp_" + "a1" * 18,
    "github_pat_11ABC_defghij",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-proj-" + "aB3" * 8,
    "xoxb-1234-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "https://somebody:hunter2@host/x.git",
    "key_file=aB3dE5gH7jK9mN1pQ3sT5vW7",
]

HARMLESS = [
    "/data/hf_checkpoints/run",
    "sk-learn-datasets",
    "3f786850e387550fdab836ed7e6dc881de23001b",
    "Qwen2-VL-7B-Instruct-GPTQ-Int4",
    "torch.nn.TransformerEncoderLayer2",
    "max_split_size_mb:512,expandable_segments:True",
    "http://127.0.0.1:8000/v1",
    "GPU-5a1c6d3e-8f0b-4b7e-9d3c-1f2e3d4c5b6a",
]


@pytest.mark.parametrize("text", TOKENS)
def test_values_that_look_like_tokens_are_taken_out(text):
    shown = secret_filter.redacted(f"before {text} after")
    assert shown.startswith("before ") and shown.endswith(" after")
    assert secret_filter.WITHHELD in shown
    assert list(secret_filter.secrets_in({"request": {"data_dir": text}})) == ["request.data_dir"]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_token_stays(text):
    assert secret_filter.redacted(text) == text


@pytest.mark.parametrize(
    "word",
    [
        *("--api-key=hunter22", "--hf_token hunter22", "model.password=hunter22", "--token hunter22"),
        *("env WANDB_API_KEY=hunter22 python x.py", "Authorization: Bearer hunter22", "apiKey=hunter22"),
    ],
)
def test_a_word_of_a_command_with_a_secret_is_refused_by_name_and_never_by_value(word):
    with pytest.raises(RequestError, match=r"^command holds what looks like a secret") as refused:
        secret_filter.refuse_secrets({"command": f"python my.py {word}"})
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    "word",
    [
        *(
            "--pad-token [PAD]",
            "--eos-token '</s>'",
            "--label-key label",
            "--max-tokens 512",
            "--user-key user_id",
        ),
        *(
            "--use-auth-token true",
            "--credentials /etc/mine.json",
            "--api-key-file key.txt",
            "--token {seed}",
        ),
        *("--api-key $MY_KEY", "--tokenizer my-tokenizer", "--monkey banana", "--private-key ~/.ssh/id"),
    ],
)
def test_options_about_tokens_and_keys_that_are_no_secrets_are_not_refused(word):
    secret_filter.refuse_secrets({"command": f"python my.py {word}"})


NAMES = (
    "NVIDIA_API_KEY",
    "HOROVOD_SECRET_KEY",
    "TORCH_HUB_TOKEN",
    "DS_TOKEN",
    "CUDA_PASSWORD",
    "NCCL_COOKIE",
)


def test_both_recorders_of_variables_leave_secrets_out(monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "hunter22")
    monkeypatch.setenv("NCCL_ALGO", "nvapi-hunter22")
    monkeypatch.setenv("LD_PRELOAD", "/lib/nvapi-hunter22/evil.so")
    monkeypatch.setenv("CUDA_MODULE_LOADING", "LAZY")
    for recorded in (software.variables(), command.environment(__import__("os").environ)):
        assert "hunter22" not in str(recorded)
        assert not recorded.keys() & {*NAMES}
        assert recorded["CUDA_MODULE_LOADING"] == "LAZY"
        assert recorded["LD_PRELOAD"].endswith("/evil.so")  # the judge still sees that there is one


def test_code_that_assigns_a_key_is_no_secret_and_a_token_in_it_is():
    line = b"api_key = settings.api_key()\nclient(password=password_of(user))\n"
    assert secret_filter.secrets_in_file("train.py", line) == []
    assert secret_filter.secrets_in_file("train.py", line + b"hub = 'nvapi-pl4ntedvalue'") == ["line 3"]
    assert secret_filter.secrets_in_file("rank_0.stderr", b"first\nrun.sh --password=pl4ntedvalue") == [
        "line 2"
    ]


@pytest.mark.parametrize("repeated", ["x", "eyJ-", "sk-", "a=", "bearer "])
def test_a_line_of_any_length_is_read_once(repeated):
    """Read again from each sign, 300,000 of them take minutes."""
    text = repeated * (300_000 // len(repeated))
    assert secret_filter.redacted(f"{text} ghp_{'a1' * 18}").endswith(f" {secret_filter.WITHHELD}")
