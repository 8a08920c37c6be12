"""What the computer has: devices that are there or refused, precision, cores, and free memory."""

from __future__ import annotations

import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from quartet.errors import ResourceError, UsageError
from quartet.machine import autocast, choose_device, free_bytes, free_cores, mapped, usable_cores, use_threads


def there(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in names)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in names)


# --- devices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "best"), [((), "cpu"), (("cuda",), "cuda"), (("mps",), "mps"), (("cuda", "mps"), "cuda")]
)
def test_auto_takes_a_gpu_where_there_is_one(
    names: tuple[str, ...], best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there(monkeypatch, *names)
    assert choose_device() == choose_device("auto") == best
    assert choose_device("cpu") == "cpu"
    for name in names:
        assert choose_device(name) == name


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch)
    with pytest.raises(ResourceError, match=rf'R02.*no "{name}" device.*--device auto') as refused:
        choose_device(name)
    assert refused.value.exit_code == 4


def test_a_device_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r'C02.*no device "cudda" \(did you mean "cuda"\?\)'):
        choose_device("cudda")


# --- precision --------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_a_cpu_computes_in_single_precision(precision: str) -> None:
    assert isinstance(autocast("cpu", precision), nullcontext)  # type: ignore[arg-type]


@pytest.mark.parametrize("has_it", [True, False])
def test_bfloat16_is_used_where_it_can_be(has_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartet.machine.devices.has_bf16", lambda _: has_it)
    if not has_it:
        with pytest.raises(UsageError, match=r"C02.*cannot compute in bf16.*precision=fp32"):
            autocast("cpu", "bf16")
        return
    with autocast("cpu", "bf16"):
        assert torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16


# --- cores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "free"), [(0.0, 8), (0.4, 8), (2.6, 5), (8.0, 1), (50.0, 1)])
def test_cores_that_others_keep_busy_are_left_to_them(
    load: float, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartet.machine.cores.usable_cores", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert free_cores() == free


def test_cores_are_counted_also_where_the_system_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither macOS nor Windows knows the affinity of a process, and Windows knows no load."""
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert usable_cores() == free_cores() == os.cpu_count()


def test_threads_are_set_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user says comes first, then what OMP_NUM_THREADS says, then the cores that are free."""
    before = torch.get_num_threads()
    monkeypatch.setattr("quartet.machine.cores.free_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    try:
        for wanted, num_sharing, expected in ((3, 1, 3), (None, 1, 4), (None, 2, 2), (None, 8, 1)):
            use_threads(wanted, num_sharing)
            assert torch.get_num_threads() == expected
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        use_threads()
        assert torch.get_num_threads() == 1  # as torch has read it
        with pytest.raises(UsageError, match=r"C02.*threads is 0"):
            use_threads(0)
    finally:
        torch.set_num_threads(before)


def test_few_results_wait_to_be_taken() -> None:
    begun: list[int] = []

    def begin(item: int) -> int:
        begun.append(item)
        return item

    found = mapped(begin, range(9), 2)
    assert next(found) == 0
    assert len(begun) <= 3
    assert list(found) == list(range(1, 9))
    assert list(mapped(begin, [], 2)) == []


# --- free memory ------------------------------------------------------------------------------------


def machine(root: Path, group: str, **files: str) -> Path:
    """A file system on which 8 GB are available to a process in a control group."""
    contents = {
        "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable:    8000000 kB\n",
        "proc/self/cgroup": group,
    }
    for name, content in (contents | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_without_a_limit_the_machine_decides(tmp_path: Path) -> None:
    assert free_bytes(root=machine(tmp_path, "0::/\n")) == 8_000_000 * 1024


def test_a_control_group_of_version_2(tmp_path: Path) -> None:
    """The limit may stand at the group or around it; files that are only remembered do not count as used."""
    files = {
        "sys/fs/cgroup/box/memory.max": "3000000\n",
        "sys/fs/cgroup/box/memory.current": "1200000\n",
        "sys/fs/cgroup/box/memory.stat": "anon 700000\ninactive_file 500000\n",
        "sys/fs/cgroup/box/job/memory.max": "max\n",
    }
    assert free_bytes(root=machine(tmp_path, "0::/box/job\n", **files)) == 3_000_000 - 1_200_000 + 500_000


def test_a_control_group_of_version_1(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "400000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "cache 100000\ntotal_inactive_file 100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000000\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 0\n",
    }
    group = "9:cpu:/\n4:memory:/job\n0::/\n"
    assert free_bytes(root=machine(tmp_path, group, **files)) == 2_000_000 - 400_000 + 100_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_has_some() -> None:
    total = re.search(r"MemTotal: *(\d+) kB", Path("/proc/meminfo").read_text())
    assert total is not None
    assert 0 < free_bytes() <= int(total[1]) * 1024


def test_where_nothing_is_known_of_memory_nothing_is_cut(tmp_path: Path) -> None:
    """Not Linux: there is no /proc."""
    assert free_bytes(root=tmp_path) == sys.maxsize
    assert free_bytes("mps") == sys.maxsize
