package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// server checks one server by its INFO, and by the settings that only CONFIG GET reports. The settings are nil if the
// user may not read them.
func (d *doctor) server(addr string, info, config map[string]string) {
	add := func(check string, severity Severity, text, remedy string) { d.add(check, severity, addr, text, remedy) }
	d.release(addr, info)
	isReplica := info["role"] == "slave"
	clustered := info["cluster_enabled"] == "1"
	if isReplica && !clustered {
		add("role", Failing, "the server is a replica, which rejects writes", "connect to its master, directly or through Sentinel")
	}
	d.eviction(addr, info)
	d.persistence(addr, info, config)
	if info["aof_last_write_status"] == "err" || info["rdb_last_bgsave_status"] == "err" {
		add("disk", Failing, "the server's last write to disk failed", "check the server's log and disk; it rejects writes (MISCONF), or loses them in a restart")
	}
	if !isReplica {
		replicas := number(info["connected_slaves"])
		switch {
		case replicas == 0:
			add("replicas", Risky, "the server has no replica", "add a replica: if the machine fails, its data is lost")
		case info["min_slaves_good_slaves"] == "": // only reported if min-replicas-to-write is set
			add("min-replicas", Risky, "the server accepts writes that no replica receives", "set min-replicas-to-write 1: a master without replicas then rejects writes that a failover would lose")
		}
	}
	if n := number(info["number_of_cached_scripts"]); n > 1000 {
		add("scripts", Risky, fmt.Sprintf("the server caches %d scripts", n), "find the client that writes values into the text of its scripts: the server caches each text until SCRIPT FLUSH")
	}
}

func (d *doctor) eviction(addr string, info map[string]string) {
	policy, limit := info["maxmemory_policy"], number(info["maxmemory"])
	if policy != "" && policy != "noeviction" {
		severity := Risky
		if limit > 0 && strings.HasPrefix(policy, "allkeys") {
			severity = Failing
		}
		d.add("eviction", severity, addr, "maxmemory-policy is "+policy+", which may evict ids and events", "run CONFIG SET maxmemory-policy noeviction, and set it in the server's configuration file")
	}
	if used := number(info["used_memory"]); limit > 0 && used > limit/10*9 {
		d.add("memory", Risky, addr, fmt.Sprintf("the server uses %d of %d bytes", used, limit), "add memory, or shorten retentions: a full server rejects commits (OOM)")
	}
}

func (d *doctor) persistence(addr string, info, config map[string]string) {
	switch {
	case info["aof_enabled"] == "1" && config["appendfsync"] == "no":
		d.add("persistence", Risky, addr, "appendfsync is no: the operating system decides when writes reach the disk", "set appendfsync everysec, or always")
	case info["aof_enabled"] != "0": // enabled, or not reported
	case config == nil:
		d.add("persistence", Risky, addr, "the server has no append-only file: a restart loses every write since the last snapshot, or all data if there are no snapshots", "set appendonly yes")
	case config["save"] == "":
		d.add("persistence", Failing, addr, "the server writes nothing to disk: a restart loses all data, including the inbox and the outbox", "set appendonly yes")
	default:
		d.add("persistence", Risky, addr, "the server only takes snapshots: a restart loses every write since the last one", "set appendonly yes")
	}
	if info["loading"] == "1" {
		d.add("persistence", Risky, addr, "the server is loading its data", "wait until the server has loaded its data")
	}
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// flaw is a vulnerability of the scripting engine, with the first fixed release of each release line.
type flaw struct {
	name          string
	redis, valkey []string
}

var flaws = []flaw{
	{"CVE-2022-24834", []string{"6.0.20", "6.2.13", "7.0.12"}, nil},
	{"CVE-2024-31449", []string{"6.2.16", "7.2.6", "7.4.1"}, []string{"7.2.7", "8.0.1"}},
	{"CVE-2024-46981", []string{"6.2.17", "7.2.7", "7.4.2"}, []string{"7.2.8", "8.0.2"}},
	{"CVE-2025-49844", []string{"6.2.20", "7.2.11", "7.4.6", "8.0.4", "8.2.2"}, []string{"7.2.11", "8.0.6", "8.1.4"}},
}

// has reports whether a release has the flaw, and whether its line has a release without it.
func (f flaw) has(version string, valkey bool) (affected, fixed bool) {
	fixes := f.redis
	if valkey {
		fixes = f.valkey
	}
	v := release(version)
	if len(fixes) == 0 {
		return false, false
	}
	for _, fix := range fixes {
		if r := release(fix); slices.Equal(r[:2], v[:2]) {
			return slices.Compare(v[:], r[:]) < 0, true
		}
	}
	newest := release(fixes[len(fixes)-1])
	return slices.Compare(v[:], newest[:]) < 0, false
}

// release reads the numbers of a version.
func release(version string) (v [3]int) {
	for i, text := range strings.SplitN(version, ".", 3) {
		v[i], _ = strconv.Atoi(text)
	}
	return v
}

// compatible returns the version of Redis whose commands a server has. In redis_version Valkey reports the one that it
// was forked from; in 9.0 it took over the commands of Redis 7.4 on fields of hashes that expire.
func compatible(info map[string]string) [3]int {
	if release(info["valkey_version"])[0] >= 9 {
		return [3]int{7, 4}
	}
	return release(info["redis_version"])
}

// release checks the version of the server.
func (d *doctor) release(addr string, info map[string]string) {
	version, name, valkey := info["redis_version"], "Redis", info["valkey_version"] != ""
	compatible := compatible(info)
	d.mu.Lock()
	if v := [2]int{compatible[0], compatible[1]}; d.version == [2]int{} || slices.Compare(v[:], d.version[:]) < 0 {
		d.version = v
	}
	d.mu.Unlock()
	if valkey {
		version, name = info["valkey_version"], "Valkey"
	}
	name += " " + cmp.Or(version, "of an unknown version")
	if compatible[0] < 6 {
		d.add("version", Failing, addr, name+" is too old", "use Redis 6.0 or later, or Valkey")
		return
	}
	var patched, unpatched []string
	for _, f := range flaws {
		switch affected, fixed := f.has(version, valkey); {
		case affected && fixed:
			patched = append(patched, f.name)
		case affected:
			unpatched = append(unpatched, f.name)
		}
	}
	if len(patched) > 0 {
		d.add("cve", Risky, addr, name+" has known flaws in its scripting engine: "+strings.Join(patched, ", "), "update the server to the latest release of this line")
	}
	if len(unpatched) > 0 {
		d.add("cve", Remark, addr, name+", as released, has known flaws in its scripting engine: "+strings.Join(unpatched, ", "),
			"this line gets no more releases: check that the package of your distribution contains the fixes, or use a newer line")
	}
}
