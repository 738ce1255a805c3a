package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// commandLine returns the command for the same operation. Environment variables select the service; see docs/cli.md.
func (p plan) commandLine() string {
	words := append([]string{"luatx", "parked", p.act}, filterFlags(p.filter)...)
	if p.act == "discard" {
		words = append(words, "--reason", shell(cmp.Or(p.reason, "…")))
	} else {
		words = append(words, p.rearmFlags()...)
	}
	return strings.Join(append(words, confirmed(p.filter)...), " ")
}

// filterFlags returns the flags of a filter, except for its ids.
func filterFlags(f outbox.Filter) (words []string) {
	for _, field := range acts.FilterFields(&f) {
		if *field.Value != "" {
			words = append(words, "--"+field.Name, shell(*field.Value))
		}
	}
	if f.OlderThan > 0 {
		words = append(words, "--older-than", f.OlderThan.String())
	}
	for _, n := range f.Slots {
		words = append(words, "--slot", strconv.Itoa(n))
	}
	for _, name := range f.Events {
		words = append(words, "--event", shell(name.String()))
	}
	if f.String() == "all" {
		words = append(words, "--all")
	}
	return words
}

// confirmed returns the end of a command line: the confirmation and the ids of a filter.
func confirmed(f outbox.Filter) []string {
	words := []string{"--yes"}
	if len(f.IDs) > 0 {
		words = append(words, "--") // an id may begin with a dash
	}
	for _, id := range f.IDs {
		words = append(words, shell(id))
	}
	return words
}

func (p plan) rearmFlags() []string {
	var words []string
	if p.opts.Canary > 0 {
		words = append(words, "--canary", strconv.Itoa(p.opts.Canary), "--canary-wait", p.opts.CanaryWait.String())
	}
	if p.opts.Rate > 0 {
		words = append(words, "--rate", strconv.FormatFloat(p.opts.Rate, 'f', -1, 64))
	}
	words = append(words, "--max-parked-again", strconv.Itoa(p.opts.MaxParkedAgain))
	if p.opts.Destination != "" {
		words = append(words, "--to", shell(p.opts.Destination))
	}
	return words
}

// curl returns the API request for the same operation, without credentials.
func (p plan) curl(c *guard.Call) string {
	body := map[string]any{"filter": filterBody(p.filter)}
	if p.filter.String() == "all" {
		body = map[string]any{"all": true}
	}
	if p.act == "discard" {
		body["reason"] = cmp.Or(p.reason, "…")
	} else {
		body["canary"], body["rate"], body["max_parked_again"] = p.opts.Canary, p.opts.Rate, p.opts.MaxParkedAgain
		if p.opts.Canary > 0 {
			body["canary_wait_seconds"] = p.opts.CanaryWait.Seconds()
		}
		if p.opts.Destination != "" {
			body["destination"] = p.opts.Destination
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // for a shell
	_ = encoder.Encode(body)     // maps of strings and numbers cannot fail
	return curlLine(c, "parked/"+p.act, strings.TrimSpace(text.String()))
}

func curlLine(c *guard.Call, to, body string) string {
	return "curl -X POST " + shell(apiAddress(c, to)) + " \\\n  -H 'Content-Type: application/json' \\\n  -d " + shell(body)
}

// filterBody returns a filter for the API, without unset fields.
func filterBody(f outbox.Filter) map[string]any {
	body := map[string]any{}
	for _, field := range acts.FilterFields(&f) {
		if *field.Value != "" {
			body[field.Name] = *field.Value
		}
	}
	if f.OlderThan > 0 {
		body["older_than_seconds"] = f.OlderThan.Seconds()
	}
	if len(f.Slots) > 0 {
		body["slots"] = f.Slots
	}
	if len(f.IDs) > 0 {
		body["ids"] = f.IDs
	}
	if len(f.Events) > 0 {
		body["events"] = f.Events
	}
	return body
}

// apiAddress returns the address of the API, as seen by the reader.
func apiAddress(c *guard.Call, to string) string {
	scheme := "http"
	if c.R.TLS != nil {
		scheme = "https"
	}
	here := &url.URL{Scheme: scheme, Host: c.R.Host, Path: "/"}
	if requested, err := url.ParseRequestURI(c.R.RequestURI); err == nil {
		here.Path, here.RawPath = requested.Path, requested.RawPath
	}
	return here.ResolveReference(&url.URL{Path: c.Base() + "api/" + to}).String()
}

// shell quotes a word for a shell if necessary.
func shell(word string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
