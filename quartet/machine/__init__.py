"""What we ask of the computer: files, compiled loops, cores, devices, processes, shards, and large arrays in files."""

from quartet.machine.compiled import compiled, is_compiled, part
from quartet.machine.cores import free_cores, mapped, one_thread_each, usable_cores, use_threads
from quartet.machine.devices import Precision, autocast, choose_device, free_bytes
from quartet.machine.files import (
    as_path,
    check_checksums,
    checksums_digest,
    found_again,
    intact,
    new_file,
    new_folder,
    sync,
    user_cache,
    write_checksums,
)
from quartet.machine.large import (
    empty_aside,
    give_back,
    is_large,
    keep_freed,
    map_batches,
    set_aside,
    set_columns_aside,
)
from quartet.machine.libraries import import_lightgbm
from quartet.machine.processes import ALONE, Processes, all_processes
from quartet.machine.shards import Place, map_shards, slices
from quartet.machine.sizes import parse_size, show_size
from quartet.machine.store import Store, store_findings

__all__ = [
    "ALONE",
    "Place",
    "Precision",
    "Processes",
    "Store",
    "all_processes",
    "as_path",
    "autocast",
    "check_checksums",
    "checksums_digest",
    "choose_device",
    "compiled",
    "empty_aside",
    "found_again",
    "free_bytes",
    "free_cores",
    "give_back",
    "import_lightgbm",
    "intact",
    "is_compiled",
    "is_large",
    "keep_freed",
    "map_batches",
    "map_shards",
    "mapped",
    "new_file",
    "new_folder",
    "one_thread_each",
    "parse_size",
    "part",
    "set_aside",
    "set_columns_aside",
    "show_size",
    "slices",
    "store_findings",
    "sync",
    "usable_cores",
    "use_threads",
    "user_cache",
    "write_checksums",
]
