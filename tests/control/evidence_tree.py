"""A /proc and /sys as Linux shows them, for tests: written below a folder, changed between readings."""

import shutil

BUS_PATH = "sys/devices/pci0000:60/0000:60:01.0/0000:61:00.0/0000:62:00.0/0000:65:00.0"
NIC_PATH = "sys/devices/pci0000:60/0000:60:01.0/0000:61:00.0/0000:62:04.0/0000:66:00.0"
FAR_NIC_PATH = "sys/devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0"
PSI = "some avg10=0.00 avg60=0.18 avg300=0.11 total={some}\nfull avg10=0.00 avg60=0.06 avg300=0.03 total={full}\n"
STAT = (
    "{pid} (py) thon (x) R 1 1 1 0 -1 4194304 5000 0 {faults} 0 900 80 0 0 20 0 40 0 1289599 3133440 380 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0 {delay} 0 0 0 0 0 0 0 0 0 0\n"
)


class Tree:
    """Writes files by path below `root`."""

    def __init__(self, root):
        self.root = root

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self, path):
        shutil.rmtree(self.root / path)

    def node(self, seconds=0.0, cpu_share=0.0, io_share=0.0):
        """A node with two CPUs after so many seconds under this pressure."""
        for what, share in (("cpu", cpu_share), ("io", io_share), ("memory", 0.0)):
            total = int(1e6 * share * seconds)
            self.write(f"proc/pressure/{what}", PSI.format(some=total, full=total // 2))
        ticks = int(100 * seconds)
        self.write(
            "proc/stat", f"cpu  {ticks} 0 {ticks} 0 0 0 0 {ticks // 10} 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n"
        )
        self.write("proc/vmstat", f"nr_free_pages 5\npgmajfault {int(7 * seconds)}\npswpin 0\npswpout 3\noom_kill 0\n")
        self.write("proc/sys/kernel/task_delayacct", "1\n")
        self.write(
            "proc/diskstats",
            "   7 0 loop0 9 9 9 9 9 9 9 9 9 9 999999\n"
            f"   8 0 sda 10 0 80 5 10 0 80 5 0 10 {int(500 * seconds)} 0 0 0 0\n"
            "   8 1 sda1 10 0 80 5 10 0 80 5 0 10 777777 0 0 0 0\n",
        )
        self.write(
            "proc/net/snmp", f"Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 {int(1000 * seconds)} {int(30 * seconds)}\n"
        )
        mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
        self.write("proc/self/mounts", mounts)

    def rank(
        self,
        pid,
        seconds=0.0,
        wait=0.0,
        throttled=0.0,
        delay=0.0,
        group="/system.slice/slurmstepd.scope/job_7/step_0/task_0",
    ):
        """A process with three threads, one busy: it waits for a CPU, is throttled and waits for disks these shares."""
        process = f"proc/{pid}"
        self.write(
            f"{process}/stat", STAT.format(pid=pid, faults=int(2 * seconds), cpu=5, delay=int(100 * delay * seconds))
        )
        self.write(f"{process}/cgroup", f"0::{group}\n")
        self.write(f"{process}/io", f"rchar: 1\nread_bytes: {int(1e6 * seconds)}\nwrite_bytes: 0\n")
        busy, waiting = int(1e9 * (1 - wait) * seconds), int(1e9 * wait * seconds)
        for thread, text in ((pid, "10 10 1"), (pid + 1, f"{busy} {waiting} 9"), (pid + 2, "0 0 0")):
            self.write(f"{process}/task/{thread}/schedstat", text + "\n")
        self.write("sys/devices/system/cpu/cpu5/cpufreq/scaling_cur_freq", "3200000\n")
        self.quota(group, seconds, throttled)

    def quota(self, group, seconds, throttled):
        """The quota is set at the job; the step and the task below count none of their own."""
        job = group.split("/step_")[0]
        text = "usage_usec 5\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n"
        self.write(f"sys/fs/cgroup{job}/cpu.stat", text.format(*(int(f * seconds) for f in (10, 9, 1e6 * throttled))))
        self.write(f"sys/fs/cgroup{group}/cpu.stat", text.format(0, 0, 0))
        self.write(f"sys/fs/cgroup{group}/cpu.pressure", PSI.format(some=int(3e5 * seconds), full=0))

    def rdma(self, seconds=0.0, cnp_a_second=0.0, rate="400 Gb/sec (4X NDR)"):
        """Two mlx5 adapters, the second far from the GPU and without hardware counters."""
        for device, path in (("mlx5_0", NIC_PATH), ("mlx5_1", FAR_NIC_PATH)):
            (self.root / path).mkdir(parents=True, exist_ok=True)
            port = f"sys/class/infiniband/{device}/ports/1"
            self.write(f"{port}/rate", rate + "\n")
            self.write(f"{port}/state", "4: ACTIVE\n")
            self.write(f"{port}/counters/port_xmit_data", f"{int(1e9 * seconds)}\n")
            link = self.root / f"sys/class/infiniband/{device}/device"
            if not link.exists():
                link.symlink_to(self.root / path)
        self.write("sys/class/infiniband/mlx5_0/node_guid", "b83f:d203:0001:0002\n")
        counters = "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
        self.write(f"{counters}/rp_cnp_handled", f"{int(cnp_a_second * seconds)}\n")
        self.write(f"{counters}/out_of_sequence", "0\n")

    def gpu(self):
        """Where the GPU is on the bus."""
        (self.root / BUS_PATH).mkdir(parents=True, exist_ok=True)
        devices = self.root / "sys/bus/pci/devices"
        devices.mkdir(parents=True, exist_ok=True)
        (devices / "0000:65:00.0").symlink_to(self.root / BUS_PATH)
