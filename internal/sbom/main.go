// Command sbom prints a software bill of materials of a Go program, in CycloneDX's JSON: the Go release that built it and each
// module that it links, as the go command recorded them in the program. The same program gives the same text.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments; usage: sbom PROGRAM", len(args))
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(describe(info, filepath.Base(args[0]), hex.EncodeToString(sum[:])))
}

// describe returns the bill of materials of a program with that build information, name and SHA-256 sum.
func describe(info *debug.BuildInfo, name, sum string) bom {
	program := module(&info.Main)
	program.Type, program.Name = "application", name
	program.Hashes = []hash{{"SHA-256", sum}}
	std := strings.TrimPrefix(info.GoVersion, "go")
	components := []component{{Type: "library", Name: "std", Version: std, PURL: "pkg:golang/std@" + std}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		components = append(components, module(dep))
	}
	return bom{"CycloneDX", "1.6", 1, metadata{program}, components}
}

func module(m *debug.Module) component {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")}
	if m.Sum != "" {
		c.Properties = []property{{"go.sum", m.Sum}}
	}
	return c
}
