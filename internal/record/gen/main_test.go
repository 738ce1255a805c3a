package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

// TestMethodsAreUpToDate tests that the Recorder has a method for each command of the go-redis in go.mod.
func TestMethodsAreUpToDate(t *testing.T) {
	t.Parallel()
	want, err := methods()
	assert.Must(t, err)
	got, err := os.ReadFile("../" + path)
	assert.Must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is of another go-redis: run `go generate ./internal/record`", path)
	}
}
