"""What we ask of the computer: files, compiled loops, cores, devices and processes."""

from quartet.machine.compiled import compiled
from quartet.machine.cores import free_cores, usable_cores, use_threads
from quartet.machine.devices import Precision, autocast, choose_device, free_bytes
from quartet.machine.files import new_file, new_folder, user_cache
from quartet.machine.processes import ALONE, Processes, all_processes

__all__ = [
    "ALONE",
    "Precision",
    "Processes",
    "all_processes",
    "autocast",
    "choose_device",
    "compiled",
    "free_bytes",
    "free_cores",
    "new_file",
    "new_folder",
    "usable_cores",
    "use_threads",
    "user_cache",
]
