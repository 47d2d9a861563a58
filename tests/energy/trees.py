"""A host's counters as folders of files, with a consumption that is known."""

from pathlib import Path


class Tree:
    """The root of a sysfs whose counters a test moves."""

    def __init__(self, root):
        self.root = root

    def rapl(self, zone="intel-rapl:0", name="package-0", *, at=0, largest=262_143_328_850):
        """A zone of RAPL; its file of microjoules."""
        folder = self.root / "class" / "powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{largest}\n")
        return put(folder / "energy_uj", at)

    def hwmon(self, device, file, value, *, name="power_meter", label=None):
        """A reading of a device; its file."""
        folder = self.root / "class" / "hwmon" / device
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        if label is not None:
            kind = "label" if file.startswith("energy") else "oem_info"
            (folder / f"{file.partition('_')[0]}_{kind}").write_text(f"{label}\n")
        return put(folder / file, value)


def lives(process):
    """Whether a process runs; one that waits to be noticed by its parent does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def put(path, value):
    path.write_text(f"{int(value)}\n")
    return path


class Accelerators:
    """The module pynvml, with counters of millijoules that a test moves."""

    class NVMLError(Exception):
        """As the module has it."""

    def __init__(self, *millijoules, refuses=None):
        self.millijoules, self.refuses = list(millijoules), refuses

    def nvmlInit(self):
        if self.refuses:
            raise self.NVMLError(self.refuses)

    def nvmlDeviceGetCount(self):
        return len(self.millijoules)

    def nvmlDeviceGetHandleByIndex(self, at):
        return at

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if self.millijoules[handle] is None:
            raise self.NVMLError("GPU is lost")
        return self.millijoules[handle]
