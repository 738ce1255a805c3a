package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

type outcome string

const (
	killed       outcome = "killed"
	survived     outcome = "SURVIVED"
	stale        outcome = "STALE"            // the text to replace is not there once
	doesNotBuild outcome = "DOES NOT COMPILE" // says nothing about the test
	redBefore    outcome = "RED BEFORE"       // the test fails without the edit
	noTest       outcome = "NO TEST RAN"      // nothing matches, or all is skipped
)

type result struct {
	Mutant
	outcome outcome
	detail  string
	took    time.Duration
}

type settings struct {
	root    string
	jobs    int
	timeout time.Duration // of one test run
}

// runAll tries every mutant, on as many copies of the tree as there are jobs. The error is that of the tool, such as a
// full disk; what becomes of a mutant is in its result.
func runAll(ctx context.Context, cfg settings, mutants []Mutant) (results []result, err error) {
	source, ok := os.DirFS(cfg.root).(fs.ReadLinkFS)
	if !ok {
		return nil, errors.New("this system's directories have no links") // os documents that they have
	}
	temp, err := os.MkdirTemp("", "luatx-mutants-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()

	next := make(chan int)
	results = make([]result, len(mutants))
	greens := &baselines{known: map[string]func() result{}}
	errs := make([]error, max(1, min(cfg.jobs, len(mutants))))
	var wg sync.WaitGroup
	for i := range errs {
		w := worker{tree: filepath.Join(temp, fmt.Sprintf("tree%d", i)), binary: filepath.Join(temp, fmt.Sprintf("test%d", i)), timeout: cfg.timeout, greens: greens}
		if err := os.CopyFS(w.tree, treeFS{source}); err != nil {
			errs[i] = err
			continue
		}
		wg.Go(func() {
			for n := range next {
				start := time.Now()
				r := w.try(ctx, mutants[n])
				r.Mutant, r.took = mutants[n], time.Since(start)
				results[n] = r
			}
		})
	}
	if errors.Join(errs...) == nil {
		for n := range mutants {
			next <- n
		}
	}
	close(next)
	wg.Wait()
	return results, errors.Join(errors.Join(errs...), context.Cause(ctx))
}

type worker struct {
	tree    string // this worker's copy
	binary  string // where it builds tests
	timeout time.Duration
	greens  *baselines
}

// try runs the test without and with the edit.
func (w worker) try(ctx context.Context, m Mutant) result {
	before := w.greens.of(m, func() result { return w.test(ctx, m) })
	switch before.outcome {
	case survived: // green without the edit
	case killed:
		return result{outcome: redBefore, detail: before.detail}
	default:
		return before
	}
	restore, err := edit(filepath.Join(w.tree, filepath.FromSlash(m.File)), m.Old, m.New)
	if err != nil {
		return result{outcome: stale, detail: err.Error()}
	}
	r := w.test(ctx, m)
	if err := restore(); err != nil {
		return result{outcome: redBefore, detail: "the edit could not be taken back: " + err.Error()}
	}
	return r
}

// edit replaces old, which must occur once, and returns how to take that back.
func edit(file, old, replacement string) (restore func() error, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), old); n != 1 || old == "" {
		return nil, fmt.Errorf("the text to replace occurs %d times in %s, not once:\n%s", n, file, old)
	}
	if old == replacement {
		return nil, errors.New("the edit changes nothing")
	}
	edited := strings.Replace(string(text), old, replacement, 1)
	return func() error { return os.WriteFile(file, text, 0o600) }, os.WriteFile(file, []byte(edited), 0o600)
}

// baselines runs each test once without an edit, whatever number of mutants name it.
type baselines struct {
	mu    sync.Mutex
	known map[string]func() result
}

func (b *baselines) of(m Mutant, run func() result) result {
	key := m.Package + " " + m.Test
	b.mu.Lock()
	once, ok := b.known[key]
	if !ok {
		once = sync.OnceValue(run)
		b.known[key] = once
	}
	b.mu.Unlock()
	return once()
}
