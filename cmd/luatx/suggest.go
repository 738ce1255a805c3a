package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// helpWords are the words that request help.
var helpWords = []string{"help", "-h", "-help", "--help"}

// groupOf returns the verbs whose name begins with a word.
func groupOf(word string) (group []verb) {
	for _, v := range verbs() {
		if strings.HasPrefix(v.name, word+" ") {
			group = append(group, v)
		}
	}
	return group
}

// helpOn prints the help of a command, or of a word with which several begin.
func helpOn(words []string, std standard) int {
	if v, _, found := findVerb(words); found {
		flags, _ := v.define(new(place))
		v.help(flags, std.out)
		return statusFine
	}
	if group := groupOf(words[0]); len(group) > 0 && len(words) == 1 {
		fmt.Fprintf(std.out, "Commands that begin with luatx %s (use -h to list the flags of a command):\n\n%s", words[0], list(group))
		return statusFine
	}
	return unknown(words, std)
}

// unknown prints the error for words that are not a command.
func unknown(words []string, std standard) int {
	group := groupOf(words[0])
	switch {
	case len(group) > 0 && len(words) == 1:
		fmt.Fprintf(std.err, "luatx %s: the command is incomplete; use one of these:\n\n%s", words[0], list(group))
		return statusUsage
	case len(group) > 0 && slices.Contains(helpWords, words[1]):
		return helpOn(words[:1], std)
	case len(group) > 0:
		words = words[:2]
	default:
		words = words[:1]
	}
	name := strings.Join(words, " ")
	fmt.Fprintf(std.err, "luatx: unknown command %q%s; luatx help lists them\n", name, didYouMean(name, commandNames()))
	return statusUsage
}

// commandNames returns the names with which a command line may begin.
func commandNames() []string {
	names := []string{"version", "help"}
	for _, v := range verbs() {
		first, _, double := strings.Cut(v.name, " ")
		if names = append(names, v.name); double && !slices.Contains(names, first) {
			names = append(names, first)
		}
	}
	return names
}

// didYouMean returns a question with the known name nearest to a mistyped one, or "" if none is near.
func didYouMean(name string, known []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, candidate := range known {
		if strings.HasSuffix(candidate, " "+name) { // the first word is missing
			best, least = candidate, 0
		}
		if d := distance(name, candidate); d < least {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance returns the number of letters to insert, delete, replace or swap with the next one to turn one text into the
// other.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// unknownFlag adds the nearest known flag to the error of an unknown flag.
func unknownFlag(flags *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err
	}
	var known []string
	flags.VisitAll(func(f *flag.Flag) { known = append(known, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean("--"+strings.TrimLeft(name, "-"), known))
}
