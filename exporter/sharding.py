"""Which of several exporters polls what: the same answer in each, without their talking to each other."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from exporter.model import Family, Labels

_IDENTITIES = ("model_id", "deployment_id")
"""What a listed series belongs to: a model with all of its deployments, or a trainer."""


class ShardError(ValueError):
    """A shard that cannot be; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Number `index` of `total` exporters that share a config; numbers start at 0."""

    index: int = 0
    total: int = 1

    @classmethod
    def of(cls, text: str, total: int) -> "Shard":
        """The shard written as its number, or as the name of a StatefulSet's pod, which ends in it."""
        match = re.fullmatch(r"(?:.*[^-]-)?([0-9]{1,9})", text)
        if match is None:
            raise ShardError(f"{text!r} is neither a number nor a name that ends in one, such as exporter-0")
        index = int(match[1])
        if total < 1:
            raise ShardError(f"{total} is not a number of shards: 1 or more")
        if index >= total:
            raise ShardError(f"{index} is not one of {total} shards, which count from 0 to {total - 1}")
        return cls(index, total)

    def owns(self, key: Iterable[str]) -> bool:
        """Whether what `key` names is this shard's."""
        name = "\0".join(key)
        return self.total == 1 or self.index == max(range(self.total), key=lambda each: _weight(each, name))

    def share(self, workspace: str, families: Iterable[Family]) -> list[Family]:
        """What of the listed families is this shard's."""
        if self.total == 1:
            return list(families)
        kept = (
            replace(
                family,
                samples=tuple(
                    sample for sample in family.samples if self.owns((workspace, *_identity(sample.labels)))
                ),
            )
            for family in families
        )
        return [family for family in kept if family.samples]


WHOLE = Shard()
"""The only one there is."""


def _weight(index: int, name: str) -> bytes:
    """The highest weight wins, so that one more shard takes its part from all and moves nothing else."""
    return hashlib.blake2b(f"{index}\0{name}".encode(), digest_size=8).digest()


def _identity(labels: Labels) -> tuple[str, ...]:
    values = dict(labels)
    return next(
        ((values[name],) for name in _IDENTITIES if name in values), tuple(value for _, value in labels)
    )
