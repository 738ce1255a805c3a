package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed equivalent.txt
var equivalentText string

// equivalents returns the mutants that change nothing a caller can observe, by key, with the reason. Blank lines separate
// the blocks of the file: the mutant's file, the line before, the line after, and a sentence that begins with "= ".
func equivalents() (map[string]string, error) {
	known := map[string]string{}
	for block := range strings.SplitSeq(strings.TrimSpace(equivalentText), "\n\n") {
		if strings.HasPrefix(block, "#") || block == "" {
			continue
		}
		key, reason, ok := strings.Cut(block, "\n= ")
		if !ok || reason == "" {
			return nil, fmt.Errorf("equivalent.txt: a block gives no reason:\n%s", block)
		}
		known[key] = reason
	}
	return known, nil
}
