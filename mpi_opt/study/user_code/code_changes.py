"""How two codes of a study differ."""

from __future__ import annotations

from typing import Any

from mpi_opt.store.records import CodeRecord


def differences(before: CodeRecord, now: CodeRecord) -> list[str]:
    """What differs between two codes, each in a few words."""
    found = []
    for path in dict.fromkeys((*before.files, *now.files)):
        if path not in now.files:
            found.append(f"{path} is not used any more")
        elif path not in before.files:
            found.append(f"{path} is new")
        elif before.files[path] != now.files[path]:
            found.append(f"{path} has changed")
    # an objective of a notebook is in no file: only the digest of its code shows that it has changed
    if not found and before.objective != now.objective and before.digest != now.digest:
        found += [f"{one['name']} has changed" for one in (now.objective,) if one is not None]
    for name in dict.fromkeys((*before.packages, *now.packages)):
        was, is_now = before.packages.get(name, "not installed"), now.packages.get(name, "not installed")
        if was != is_now:
            found.append(f"{name} {was}, now {is_now}")
    for place in dict.fromkeys((*before.data, *now.data)):
        if before.data.get(place) != now.data.get(place):
            found.append(f"data {place}: {_size(before.data.get(place))}, now {_size(now.data.get(place))}")
    return found


def _size(described: dict[str, Any] | None) -> str:
    if described is None:
        return "none"
    files = "" if described["files"] == 1 else f" in {described['files']} files"
    return f"{described['bytes']:,} bytes{files} of {described['changed'][:19].replace('T', ' ')}"
