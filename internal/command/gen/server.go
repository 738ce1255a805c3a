package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
)

// load asks a server of Redis 7.0 or later for its commands. It returns them by name and omits those of modules.
func load(ctx context.Context, client redis.UniversalClient) ([]command.Fact, error) {
	rows, err := client.Do(ctx, "COMMAND").Slice()
	if err != nil {
		return nil, err
	}
	docs, err := loadDocs(ctx, client)
	if err != nil {
		return nil, err
	}
	var facts []command.Fact
	for _, row := range rows {
		found, err := parse(row)
		if err != nil {
			return nil, err
		}
		facts = append(facts, found...)
	}
	for i := range facts {
		f := &facts[i]
		f.Since, f.Group = docs[f.Name].since, docs[f.Name].group
	}
	slices.SortFunc(facts, func(a, b command.Fact) int { return strings.Compare(a.Name, b.Name) })
	return facts, nil
}

// parse reads one row of COMMAND: name, arity, flags, first key, last key, step, categories, tips, key specifications,
// subcommands. If all subcommands of a container have the same policy, the container represents them.
func parse(row any) ([]command.Fact, error) {
	fields, _ := row.([]any)
	if len(fields) < 10 {
		return nil, errors.New("COMMAND has no key specifications; use Redis 7.0 or later")
	}
	flags := words(fields[2])
	if slices.Contains(flags, "module") {
		return nil, nil
	}
	name, _ := fields[0].(string)
	f := command.Fact{Name: strings.ToUpper(strings.ReplaceAll(name, "|", " ")), Arity: integer(fields[1])}
	for word, flag := range map[string]command.Flag{"write": command.Write, "noscript": command.NoScript, "blocking": command.Blocking} {
		if slices.Contains(flags, word) {
			f.Flags |= flag
		}
	}
	specs, _ := fields[8].([]any)
	for _, spec := range specs {
		key, isKey, err := parseKey(pairs(spec))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if isKey {
			f.Keys = append(f.Keys, key)
		}
	}
	subcommands, _ := fields[9].([]any)
	if len(subcommands) == 0 || command.Policed(f.Name) {
		return []command.Fact{f}, nil
	}
	var facts []command.Fact
	for _, sub := range subcommands {
		found, err := parse(sub)
		if err != nil {
			return nil, err
		}
		facts = append(facts, found...)
	}
	return facts, nil
}

// parseKey reads one key specification.
func parseKey(spec map[any]any) (key command.KeySpec, isKey bool, err error) {
	flags := words(spec["flags"])
	if slices.Contains(flags, "not_key") {
		return key, false, nil
	}
	key.Changes = !slices.Contains(flags, "RO")
	begin, find := pairs(spec["begin_search"]), pairs(spec["find_keys"])
	from, how := pairs(begin["spec"]), pairs(find["spec"])
	if begin["type"] != "index" || find["type"] == "unknown" {
		key.Place = command.Hidden
		return key, true, nil
	}
	key.Begin, key.Step = integer(from["index"]), integer(how["keystep"])
	switch find["type"] {
	case "range":
		key.Last = integer(how["lastkey"])
		return key, true, nil
	case "keynum":
		key.Place = command.Counted
		key.Begin += integer(how["keynumidx"])
		if integer(how["firstkey"]) != integer(how["keynumidx"])+1 {
			return key, true, errors.New("the keys do not follow their number")
		}
		return key, true, nil
	}
	return key, true, fmt.Errorf("unknown way to find keys: %v", find["type"])
}

type doc struct{ since, group string }

// loadDocs reads the version and the chapter of each command from COMMAND DOCS.
func loadDocs(ctx context.Context, client redis.UniversalClient) (map[string]doc, error) {
	reply, err := client.Do(ctx, "COMMAND", "DOCS").Result()
	if err != nil {
		return nil, err
	}
	docs := make(map[string]doc)
	var add func(commands map[any]any)
	add = func(commands map[any]any) {
		for name, value := range commands {
			about := pairs(value)
			since, _ := about["since"].(string)
			group, _ := about["group"].(string)
			docs[strings.ToUpper(strings.ReplaceAll(fmt.Sprint(name), "|", " "))] = doc{since, group}
			add(pairs(about["subcommands"]))
		}
	}
	add(pairs(reply))
	return docs, nil
}

// pairs returns the map of a reply in RESP3, or nil if the reply is not a map.
func pairs(reply any) map[any]any {
	all, _ := reply.(map[any]any)
	return all
}

func words(reply any) []string {
	var all []string
	elements, _ := reply.([]any)
	for _, e := range elements {
		all = append(all, fmt.Sprint(e))
	}
	return all
}

func integer(reply any) int {
	n, _ := reply.(int64)
	return int(n)
}
