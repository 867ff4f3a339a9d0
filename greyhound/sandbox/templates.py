"""Configuration texts of the private cluster (string.Template); meaning of the lines: Slurm's slurm.conf(5)."""

from string import Template

# NoCtldInAddrAny, NoInAddrAny: without them every daemon listens on 0.0.0.0.
# cred_expire=5: a requeued job would otherwise wait 120 s. AccountingStoragePass: AuthInfo does not cover slurmdbd.
# CPUs are claimed, not real (config_overrides): eight ranks fit on one node of a two-core machine.
SLURM_CONF = Template("""\
ClusterName=$cluster
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$ctld_port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$munge_socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool/%n
SlurmctldPidFile=$directory/run/slurmctld.pid
SlurmdPidFile=$directory/run/slurmd.%n.pid
SlurmctldLogFile=$directory/log/slurmctld.log
SlurmdLogFile=$directory/log/slurmd.%n.log
PlugStackConfig=$directory/etc/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
FirstJobId=$first_job_id
MaxJobId=$last_job_id
JobRequeue=1
KillWait=5
InactiveLimit=0
MessageTimeout=30
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$dbd_port
AccountingStoragePass=$munge_socket
AccountingStoreFlags=job_comment
$gres_types
$node_lines
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")

NODE_LINE = Template(
    "NodeName=$name NodeHostname=localhost NodeAddr=127.0.0.1 Port=$port "
    "CPUs=$cpus Boards=1 SocketsPerBoard=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=4096$gres State=UNKNOWN"
)

SLURMDBD_CONF = Template("""\
AuthType=auth/munge
AuthInfo=socket=$munge_socket
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$dbd_port
SlurmUser=$user
LogFile=$directory/log/slurmdbd.log
PidFile=$directory/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
""")

# slurmdbd would make the database itself by connecting anew on a handle that has just failed; MariaDB's client library
# 3.4.10 (Debian 13) then refuses every result ("exceeds maximum allowed number of columns (=0)").
DATABASE_SQL = "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"

CGROUP_CONF = Template("CgroupPlugin=$cgroup_plugin\n")
GRES_CONF = Template("AutoDetect=off\nNodeName=$nodes Name=gpu File=$devices\n")

PLUGSTACK_CONF = Template(
    "optional $native/spank_greyhound.so python=$python native=$native record_dir=$records redis_server=$redis_server "
    "max_mode=on mute_file=$mute_file\n"
)
