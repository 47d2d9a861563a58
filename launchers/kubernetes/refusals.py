"""Refusals of kubectl in sentences, with the next step."""

from __future__ import annotations

import re

REFUSED = (
    (
        r"forbidden: exceeded quota",
        "The quota of the namespace does not allow it; reduce launcher.resources or launcher.nodes, or ask for more.",
    ),
    (
        r"\(Forbidden\)|is forbidden",
        "Apply the Role of launchers/kubernetes/role.yaml, and bind it to this user.",
    ),
    (
        r"\(Unauthorized\)|must be logged in|getting credentials",
        "Log in to the cluster, or choose another with launcher.context=NAME.",
    ),
    (
        r"no matches for kind \"(?P<kind>\w+)\"|doesn't have a resource type \"(?P<type>\w+)",
        "Install {what} on the cluster, or choose the other value of launcher.kind: jobset, trainjob.",
    ),
    (
        r"\(AlreadyExists\)|already exists",
        "It belongs to another campaign, or was left over: delete it, or give this campaign another output=DIR.",
    ),
    (
        r"unknown field|strict decoding error",
        "Fields in launcher.pod are misspelt, or the cluster has an older version of it than the manifest is for.",
    ),
    (
        r"unknown (shorthand )?flag|unknown command",
        "This kubectl is too old; install a newer one (1.37 was tried).",
    ),
    (
        r"context \"?[^\"]*\"? does not exist|no context exists",
        "Choose another with launcher.context=NAME; kubectl config get-contexts lists them.",
    ),
    (
        r"connection refused|refused - did|no such host|i/o timeout|Unable to connect|TLS handshake|EOF|Unavailable",
        "The cluster does not answer; try again later, or choose another with launcher.context=NAME.",
    ),
    (r"not found$|not found: ", "Check launcher.namespace, and what the manifest refers to."),
)
"""What kubectl says when it refuses, and the next step."""


def explain(said: str) -> str:
    """What kubectl said, with the next step."""
    for pattern, step in REFUSED:
        found = re.search(pattern, said)
        if found:
            named = found.groupdict()
            what = next(filter(None, (named.get("kind"), named.get("type"))), "")
            return f"{said.rstrip('.')}. {step.format(what=what)}"
    return said
