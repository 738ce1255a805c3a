package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
)

var completionVerb = verb{
	name: "completion", args: "bash|zsh|fish", needs: noServer, short: "print the completion script of a shell",
	long: `luatx completion prints a script that makes a shell complete commands and flags. Load it with source <(luatx completion bash),
source <(luatx completion zsh), or luatx completion fish | source.`,
}

// completionFlags is not in the table of verbs, because its action lists them.
func completionFlags(*flag.FlagSet) action {
	return func(_ context.Context, s *session, shells []string) error {
		switch shells[0] {
		case "bash":
			completeBash(s.std.out)
		case "zsh":
			fmt.Fprintln(s.std.out, "autoload -U +X bashcompinit && bashcompinit")
			completeBash(s.std.out)
		case "fish":
			completeFish(s.std.out)
		default:
			return usageError{fmt.Errorf("completion for %q: unknown shell; use bash, zsh or fish", shells[0])}
		}
		return nil
	}
}

// candidates returns the words that may follow others: the commands, their second words and their flags.
func candidates() (order []string, next map[string][]string) {
	next = map[string][]string{}
	add := func(before, word string) {
		if _, known := next[before]; !known {
			order = append(order, before)
		}
		next[before] = append(next[before], word)
	}
	add("", "version")
	add("", "help")
	group := ""
	for _, v := range verbs() {
		first, second, double := strings.Cut(v.name, " ")
		if first != group {
			add("", first)
		}
		if group = first; double {
			add(first, second)
		}
		flags, _ := v.define(new(place))
		flags.VisitAll(func(f *flag.Flag) { add(v.name, "--"+f.Name) })
	}
	return order, next
}

func completeBash(out io.Writer) {
	order, next := candidates()
	fmt.Fprint(out, `_luatx() {
	local cur="${COMP_WORDS[COMP_CWORD]}" words="" path="${COMP_WORDS[*]:1:COMP_CWORD-1}"
	case "$path" in
`)
	for _, before := range order {
		if before == "" {
			fmt.Fprintf(out, "\t'') words=%q ;;\n", strings.Join(next[""], " "))
		}
	}
	// Longer names come first, because the flags of "parked list" must not be completed after "parked".
	for _, exact := range []bool{true, false} {
		for _, before := range order {
			switch {
			case before == "":
			case exact && !strings.HasPrefix(next[before][0], "-"):
				fmt.Fprintf(out, "\t%q) words=%q ;;\n", before, strings.Join(next[before], " "))
			case !exact && strings.HasPrefix(next[before][0], "-"):
				fmt.Fprintf(out, "\t%q*) words=%q ;;\n", before, strings.Join(next[before], " "))
			}
		}
	}
	fmt.Fprint(out, `	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _luatx luatx
`)
}

func completeFish(out io.Writer) {
	order, next := candidates()
	for _, before := range order {
		condition := "__fish_use_subcommand"
		if before != "" {
			condition = "__fish_seen_subcommand_from " + strings.ReplaceAll(before, " ", "; and __fish_seen_subcommand_from ")
		}
		for _, word := range next[before] {
			if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
				fmt.Fprintf(out, "complete -c luatx -n '%s' -l %s\n", condition, name)
			} else {
				fmt.Fprintf(out, "complete -c luatx -f -n '%s' -a %s\n", condition, word)
			}
		}
	}
}
