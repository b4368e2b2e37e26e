"""One function per row of the table in docs/benchmarks.md."""
import dataclasses


@dataclasses.dataclass
class Row:
    number: int
    title: str
    target: str
    run: object  # a function of a Bench that returns Measures


def all_rows():
    from . import disk, load, save, sink
    rows = [
        Row(1, "durable torch.save, four drives", ">= 0.97 of min(raw, sink)", save.four_drives),
        Row(2, "the same over one XFS drive; over btrfs raid0 with xxhash", ">= 4 times; >= 2 times", save.others),
        Row(3, "torch.load, cold; mmap and safetensors", ">= 0.95 of min(raw, sink); mmap >= 0.8", load.cold),
        Row(4, "scaling of 1 and 3 from one to four drives", "efficiency >= 0.97", save.scaling),
        Row(5, "durable save on the machine's own drive", ">= 0.95 of min(raw, sink), > plain directory with fsync",
            disk.own_drive),
        Row(6, "daemon CPU seconds per GB: durable save; load", "<= 0.30; <= 0.30", load.daemon_cpu),
        Row(13, "null_write mount / minimal discarding FUSE filesystem", ">= 1.0", sink.against_discarding),
    ]
    return {row.number: row for row in rows}
