"""What we ask of the computer: files, compiled loops, cores, devices and processes."""

from quartet.machine.compiled import compiled
from quartet.machine.cores import free_cores, usable_cores, use_threads
from quartet.machine.devices import Precision, autocast, choose_device, free_bytes
from quartet.machine.files import (
    as_path,
    check_checksums,
    found_again,
    intact,
    new_file,
    new_folder,
    user_cache,
    write_checksums,
)
from quartet.machine.processes import ALONE, Processes, all_processes
from quartet.machine.sizes import parse_size

__all__ = [
    "ALONE",
    "Precision",
    "Processes",
    "all_processes",
    "as_path",
    "autocast",
    "check_checksums",
    "choose_device",
    "compiled",
    "found_again",
    "free_bytes",
    "free_cores",
    "intact",
    "new_file",
    "new_folder",
    "parse_size",
    "usable_cores",
    "use_threads",
    "user_cache",
    "write_checksums",
]
