package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
)

type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"
	invalid  outcome = "does not compile" // shows nothing about the tests
)

type result struct {
	mutant

	outcome outcome
	by      string // the test that failed
	took    time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("%-8s  %5.1fs  %s  %s", r.outcome, r.took.Seconds(), r.mutant, r.by)
}

// A rung is a run of some tests of a package. A mutant climbs from the quick rungs to the slow ones until a test
// fails.
type rung struct {
	pkg    string
	only   string // regular expression of test names; empty: all tests, without the subtests that embedded selects
	server string // path of the redis-server; empty: the one that the tests find themselves
}

func (r rung) String() string {
	return strings.Join(strings.Fields(r.pkg+" "+r.only+" "+r.server), " ")
}

// embedded selects the subtests on miniredis, and so leaves out those that start servers.
const embedded = "/^miniredis$"

// reviewed is the test that compares the texts of compiled scripts with reviewed ones. It would notice every edit, and so hide whether
// another test does.
const reviewed = "^TestCompiledTextsAreAsReviewed$"

type runner struct {
	root, temp string
	limit      time.Duration
	servers    []string // further servers that Lua mutants climb to with their nearest package, after the one that the tests find

	mu        sync.Mutex
	originals map[string]func() (original, error) // by package: compiles the unchanged tests once
	green     map[rung]bool                       // rungs that pass without an edit
	killers   map[string][]rung                   // by file: the tests that failed most recently
	tried     int                                 // mutants of the last sample, including those that do not compile
}

func newRunner(root string, limit time.Duration) (*runner, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "luatx-mutants-")
	if err != nil {
		return nil, err
	}
	return &runner{
		root: absolute, temp: temp, limit: limit,
		originals: map[string]func() (original, error){}, green: map[rung]bool{}, killers: map[string][]rung{},
	}, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.temp) }

// A worker tries mutants in its own directory, at the same time as other workers of the same runner.
type worker struct {
	*runner

	dir string
}

func (r *runner) worker() (worker, error) {
	dir, err := os.MkdirTemp(r.temp, "worker")
	return worker{r, dir}, err
}

// sample runs mutants in their order, with several workers, until size of them have compiled. It returns an error if a test
// fails without an edit.
func (r *runner) sample(ctx context.Context, mutants []mutant, size, workers int, each func(result)) ([]result, error) {
	var (
		results []result
		taken   int // mutants in progress, and those that compiled
		mu      sync.Mutex
	)
	r.tried = 0
	next := func() (mutant, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(mutants) == 0 || taken == size {
			return mutant{}, false
		}
		m := mutants[0]
		mutants, taken = mutants[1:], taken+1
		r.tried++
		return m, true
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for range workers {
		w, err := r.worker()
		if err != nil {
			return nil, err
		}
		running.Go(func() {
			for m, ok := next(); ok && ctx.Err() == nil; m, ok = next() {
				start := time.Now()
				outcome, by, err := w.try(ctx, m)
				if err != nil {
					cancel(fmt.Errorf("%s: %w", m, err))
					return
				}
				mu.Lock()
				if outcome == invalid {
					taken--
				} else {
					results = append(results, result{m, outcome, by, time.Since(start)})
					each(results[len(results)-1])
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return results, context.Cause(ctx)
}

func (w worker) try(ctx context.Context, m mutant) (result outcome, by string, err error) {
	rungs := m.tests
	if rungs == nil {
		rungs = w.known(m.file)
		for _, pkg := range m.packages {
			rungs = append(rungs, rung{pkg: pkg, only: embedded}, rung{pkg: pkg})
		}
		if path.Ext(m.file) == ".lua" {
			for _, server := range w.servers {
				rungs = append(rungs, rung{pkg: m.packages[0], server: server})
			}
		}
	}
	binaries := map[string]string{}
	for _, step := range rungs {
		if binaries[step.pkg] == "" {
			binary, compiled, err := w.build(ctx, m, step.pkg)
			if err != nil || !compiled {
				return invalid, "", err
			}
			binaries[step.pkg] = binary
		}
		red, by, err := w.judge(ctx, step, binaries[step.pkg])
		if err == nil && red {
			err = w.passes(ctx, by)
		}
		if err != nil {
			return "", "", err
		}
		if red {
			if by != step { // one test failed, rather than the whole program
				w.remember(m.file, by)
			}
			return killed, by.String(), nil
		}
	}
	return survived, "", nil
}

// judge reports whether a rung fails, and the narrowest rung that fails.
func (w worker) judge(ctx context.Context, step rung, binary string) (red bool, by rung, err error) {
	for range 3 { // on a busy machine, a test may fail once, and the tests after it do not run
		red, name, err := w.run(ctx, step, binary)
		if err != nil || !red || name == "" {
			return red, step, err
		}
		alone := rung{step.pkg, "^" + name + "$", step.server}
		if red, _, err := w.run(ctx, alone, binary); err != nil || red {
			return red, alone, err
		}
	}
	return false, step, nil
}

// remember keeps the last three tests that failed for mutants of a file.
func (r *runner) remember(file string, last rung) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := slices.DeleteFunc(r.killers[file], func(k rung) bool { return k == last })
	known = append([]rung{last}, known...)
	r.killers[file] = known[:min(len(known), 3)]
}

func (r *runner) known(file string) []rung {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.killers[file])
}

// passes returns an error if a rung fails without an edit.
func (r *runner) passes(ctx context.Context, step rung) error {
	r.mu.Lock()
	green := r.green[step]
	r.mu.Unlock()
	if green {
		return nil
	}
	unchanged, err := r.original(ctx, step.pkg)
	if err != nil {
		return err
	}
	for range 2 { // on a busy machine, a test may fail once
		red, _, err := r.run(ctx, step, unchanged.binary)
		if err != nil {
			return err
		}
		if !red {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.green[step] = true
			return nil
		}
	}
	return fmt.Errorf("%s fails without any edit", step)
}

func (r *runner) original(ctx context.Context, pkg string) (original, error) {
	r.mu.Lock()
	compiled, ok := r.originals[pkg]
	if !ok {
		binary := filepath.Join(r.temp, fmt.Sprintf("original%d", len(r.originals)))
		compiled = sync.OnceValues(func() (original, error) { return r.compileOriginal(ctx, binary, pkg) })
		r.originals[pkg] = compiled
	}
	r.mu.Unlock()
	return compiled()
}

// build builds the test binary of a package with the edit. It returns false if the edit does not compile.
func (w worker) build(ctx context.Context, m mutant, pkg string) (binary string, compiled bool, err error) {
	binary = filepath.Join(w.dir, "edited-"+strings.NewReplacer("/", "_", ".", "_").Replace(pkg))
	if path.Ext(m.file) == ".lua" {
		unchanged, err := w.original(ctx, pkg)
		if err != nil {
			return "", false, err
		}
		return binary, true, patch(unchanged.binary, binary, m.text, m.edited())
	}
	edited, overlay := filepath.Join(w.dir, "edited.go"), filepath.Join(w.dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(w.root, filepath.FromSlash(m.file)): edited}})
	if err != nil {
		return "", false, err
	}
	if err := errors.Join(os.WriteFile(edited, []byte(m.edited()), 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return "", false, err
	}
	if w.relink(ctx, m, pkg, edited, binary) == nil {
		return binary, true, nil
	}
	_, err = w.compile(ctx, binary, pkg, "-overlay", overlay)
	return binary, err == nil, ctx.Err()
}

func (r *runner) compile(ctx context.Context, binary, pkg string, flags ...string) ([]byte, error) {
	// With -trimpath in GOFLAGS, the linker would reject the package that relink compiles: it is compiled without that flag.
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-trimpath=false", "-o", binary}, flags...)
	var out bytes.Buffer
	err := start(ctx, r.root, []string{"GOTMPDIR=" + r.temp}, &out, "go", append(args, pkg)...)
	return out.Bytes(), err
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// run runs a rung until the first test fails.
func (r *runner) run(ctx context.Context, step rung, binary string) (red bool, by string, err error) {
	bounded, cancel := context.WithTimeout(ctx, r.limit+20*time.Second)
	defer cancel()
	skip := reviewed
	if step.only == "" {
		skip += "|" + embedded
	}
	args := []string{"-test.failfast", "-test.count=1", "-test.timeout=" + r.limit.String(), "-test.run=" + step.only, "-test.skip=" + skip}
	out := untilRed{stop: cancel}
	var env []string
	if step.server != "" {
		env = []string{redistest.EnvBinary + "=" + step.server}
	}
	err = start(bounded, filepath.Join(r.root, filepath.FromSlash(step.pkg)), env, &out, binary, args...)
	if ctx.Err() != nil {
		return false, "", ctx.Err()
	}
	if match := failed.FindSubmatch(out.Bytes()); match != nil {
		by = string(match[1])
	}
	if step.only != "" && step.only != embedded && bytes.Contains(out.Bytes(), []byte("testing: warning: no tests to run")) {
		return false, "", fmt.Errorf("no test matches %s", step)
	}
	return err != nil, by, nil
}

// untilRed keeps the output of tests and stops them at the first failure.
type untilRed struct {
	bytes.Buffer

	stop func()
}

func (u *untilRed) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if failed.Match(u.Bytes()) {
		u.stop()
	}
	return n, err
}

func start(ctx context.Context, dir string, env []string, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second // a child of the test may keep its output open
	return cmd.Run()
}
