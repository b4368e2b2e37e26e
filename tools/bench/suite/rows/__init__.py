"""One function per row of the table in docs/benchmarks.md; docs/benchmarks/rowNN.md says what it means."""
import dataclasses


@dataclasses.dataclass
class Row:
    number: int
    title: str
    target: str
    run: object  # a function of a Bench that returns Measures


def all_rows():
    from . import against, big_machine, check, compress, crowd, disk, growth, library, load, requests, restore, save, \
        serial, sink, small, streams, tier
    rows = [
        Row(1, "durable torch.save, four drives", "≥ 0.97 of min(raw, sink)", save.four_drives),
        Row(2, "durable torch.save against one XFS, btrfs raid0, DeepSpeed", "≥ 4 times; ≥ 2 times", save.others),
        Row(3, "torch.load, cold; mmap and safetensors", "≥ 0.95 of min(raw, sink); mmap ≥ 0.8", load.cold),
        Row(4, "saves and loads: from one drive to four", "efficiency ≥ 0.97", save.scaling),
        Row(5, "durable save on the machine's own drive", "≥ 0.95 of min(raw, sink), > plain directory with fsync",
            disk.own_drive),
        Row(6, "processor time of the daemon per 10⁹ bytes", "≤ 0.30 s", load.daemon_cpu),
        Row(7, "8 processes at once", "save ≥ 0.97 of fio with 8 jobs; load: bytes read / size ≤ 1.1", crowd.many),
        Row(8, "stat, lookup and readdir while row 7 runs", "99th percentile < 5 ms", crowd.latency),
        Row(9, "small files against a FUSE passthrough with the same fsyncs", "≥ 1.0", small.small_files),
        Row(10, "rotation: tenth save against the first", "≥ 1.0", disk.rotation),
        Row(11, "memory of the daemon in row 7", "≤ pool + 100 MiB", crowd.memory),
        Row(12, "overlap with training, durable=fsync", "returns ≥ 0.95 of sink; committed ≥ 0.95 of raw", save.overlap),
        Row(13, "null_write mount against a minimal discarding FUSE filesystem", "≥ 1.0", sink.against_discarding),
        Row(14, "fsck --verify-data, cold", "≥ 0.95 of raw", check.verification),
        Row(15, "this build against another (--against)", "rates ≥ 0.97; costs ≤ 1.03", against.another_build),
        Row(16, "compress=: saves, loads, and what is left", "bf16 ≥ 1.4 × raw, fp32 ≥ 1.15 × raw; auto ≥ 0.97",
            compress.compression),
        Row(17, "streams side by side, each transfer or hash held up for 8 ms", "8 streams ≥ 6; one reader ≥ 2.5",
            streams.side_by_side),
        Row(18, "a model of a big machine: 64 cores, eight fast drives", "≥ 0.95 of the drives or of the copies",
            big_machine.big_machine),
        Row(19, "growth: files, chunks of a file, open files, members", "exponents ≤ 1.1; of a commit ≤ 0.1", growth.growth),
        Row(20, "what is serial: locks and single threads", "each allows 100 GB/s, and 500,000 requests a second",
            serial.serial_parts),
        Row(21, "copies in a distributed store", "out ≥ 1.0 of rclone and aws; saves ≥ 0.95 of without", tier.copies),
        Row(22, "an array restored from a distributed store", "≥ 1.0 of rclone and aws, or of rclone and cp",
            restore.restored),
        Row(23, "small requests of many clients at once, against a FUSE passthrough", "≥ 1.0", requests.many_clients),
        Row(24, "the library, from C++ and Python, against fio and torch.save", "≥ 0.97 of fio", library.against_fio),
    ]
    return {row.number: row for row in rows}
