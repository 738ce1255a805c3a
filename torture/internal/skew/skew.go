// Package skew builds a program with a wrong clock: the same program with a changed time package, whose wall clock is off
// by an amount from the environment. Monotonic clocks are unchanged, as on a machine whose wall clock is set wrong.
package skew

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Env is the name of the environment variable with the offset of the clock in seconds.
const Env = "LUATX_TORTURE_SKEW"

const (
	clock  = "\tsec, nsec, mono := runtimeNow()\n"
	skewed = clock + "\tsec += torturedBy\n"
)

const addition = `package time

import "syscall"

// torturedBy is the offset of this clock in seconds.
var torturedBy = func() (n int64) {
	text, _ := syscall.Getenv("` + Env + `")
	negative := text != "" && text[0] == '-'
	for _, digit := range []byte(text) {
		if '0' <= digit && digit <= '9' {
			n = 10*n + int64(digit-'0')
		}
	}
	if negative {
		return -n
	}
	return n
}()
`

// Build builds the program in the working directory with such a clock. It writes the binary to dir and returns its path. It
// takes a minute if nothing is cached.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("skew: go env GOROOT: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	original, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	if bytes.Count(original, []byte(clock)) != 1 {
		return "", errors.New("skew: time.go of this Go version does not read the clock as expected")
	}
	edited, added, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "tortured.go"), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "time.go"): edited, filepath.Join(source, "tortured.go"): added,
	}})
	if err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{
		edited: bytes.Replace(original, []byte(clock), []byte(skewed), 1), added: []byte(addition), overlay: replaced,
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return "", fmt.Errorf("skew: %w", err)
		}
	}
	program := filepath.Join(dir, "skewed")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "github.com/luatx/luatx/torture")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("skew: %w\n%s", err, out)
	}
	return program, nil
}
