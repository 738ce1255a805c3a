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
		add("role", Failing, "it is a replica, which takes no writes", "connect to its master, or through Sentinel")
	}
	d.eviction(addr, info)
	d.persistence(addr, info, config)
	if info["aof_last_write_status"] == "err" || info["rdb_last_bgsave_status"] == "err" {
		add("disk", Failing, "the last write to its disk has failed", "look at its log and its disk; it refuses writes (MISCONF), or loses them with a restart")
	}
	if !isReplica {
		replicas := number(info["connected_slaves"])
		switch {
		case replicas == 0:
			add("replicas", Risky, "it has no replica", "add one: what the machine loses is lost")
		case info["min_slaves_good_slaves"] == "": // only reported if min-replicas-to-write is set
			add("min-replicas", Risky, "it takes writes while no replica hears of them", "set min-replicas-to-write 1: an old master then refuses instead of losing what it took")
		}
	}
	if n := number(info["number_of_cached_scripts"]); n > 1000 {
		add("scripts", Risky, fmt.Sprintf("it keeps %d scripts", n), "find who sends scripts with values in their text: each is kept until SCRIPT FLUSH")
	}
}

func (d *doctor) eviction(addr string, info map[string]string) {
	policy, limit := info["maxmemory_policy"], number(info["maxmemory"])
	if policy != "" && policy != "noeviction" {
		severity := Risky
		if limit > 0 && strings.HasPrefix(policy, "allkeys") {
			severity = Failing
		}
		d.add("eviction", severity, addr, "maxmemory-policy is "+policy+", which may forget ids and events", "CONFIG SET maxmemory-policy noeviction, and in its configuration")
	}
	if used := number(info["used_memory"]); limit > 0 && used > limit/10*9 {
		d.add("memory", Risky, addr, fmt.Sprintf("%d of %d bytes are in use", used, limit), "give it more memory, or shorten retentions: without it commits are refused (OOM)")
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
		d.add("persistence", Risky, addr, "it is loading its data", "wait until it has")
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
		d.add("cve", Risky, addr, name+" has known flaws of its scripting engine: "+strings.Join(patched, ", "), "update it to the last release of its line")
	}
	if len(unpatched) > 0 {
		d.add("cve", Remark, addr, name+", as it was released, has known flaws of its scripting engine: "+strings.Join(unpatched, ", "),
			"its line gets no more releases: see that your distribution's package has the fixes, or move to a newer line")
	}
}
