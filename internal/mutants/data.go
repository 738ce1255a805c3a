package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed equivalent.txt
var equivalentText string

//go:embed promises.txt
var promisesText string

// blocks splits a data file into its mutants, by key. The value is the line that begins with "= ". Blank lines separate the
// blocks, and lines that begin with # are comments.
func blocks(text string) (map[string]string, error) {
	found := map[string]string{}
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		for strings.HasPrefix(block, "#") {
			_, block, _ = strings.Cut(block, "\n")
		}
		if block == "" {
			continue
		}
		key, last, ok := strings.Cut(block, "\n= ")
		if _, twice := found[key]; !ok || twice {
			return nil, fmt.Errorf("the block has no line that begins with =, or occurs twice:\n%s", block)
		}
		found[key] = last
	}
	return found, nil
}

// equivalents returns the generated mutants that no caller can observe, by key, with the reason.
func equivalents() (map[string]string, error) { return blocks(equivalentText) }

// promises returns the mutants of promises.txt. Each names the test that must notice it.
func promises(root string) ([]mutant, error) {
	found, err := blocks(promisesText)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for key, test := range found {
		m, err := promise(root, key, test)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func promise(root, key, test string) (mutant, error) {
	file, edit, _ := strings.Cut(key, "\n")
	var old, with []string
	for line := range strings.SplitSeq(edit, "\n") {
		if before, ok := strings.CutPrefix(line, "- "); ok {
			old = append(old, before)
		} else {
			with = append(with, strings.TrimPrefix(strings.TrimPrefix(line, "+"), " "))
		}
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return mutant{}, err
	}
	start := strings.Index(string(text), strings.Join(old, "\n"))
	if n := strings.Count(string(text), strings.Join(old, "\n")); n != 1 || len(old) == 0 {
		return mutant{}, fmt.Errorf("promises.txt: the text before the edit occurs %d times:\n%s", n, key)
	}
	pkg, name, _ := strings.Cut(test, " ")
	return mutant{
		file: file, op: "break a promise", text: string(text), start: start, end: start + len(strings.Join(old, "\n")),
		with: strings.Join(with, "\n"), tests: []rung{{pkg: pkg, only: name}},
	}, nil
}
