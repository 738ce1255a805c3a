package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// envACL set: clients log in as the user of docs/acl.md, and only those of Admin as the administrator.
const envACL = "LUATX_TEST_ACL"

const password = "secret"

// Rules returns the rules that docs/acl.md gives a user on the program's servers, without password, keys and
// channels.
func (b Binary) Rules(user string) ([]string, error) {
	lines, err := b.ACLLines()
	if err != nil {
		return nil, err
	}
	return rulesOf(lines, user)
}

func rulesOf(lines [][]string, user string) ([]string, error) {
	var all []string
	for _, words := range lines {
		for _, word := range words[3:] {
			if words[2] == user && word[0] == '+' {
				all = append(all, word)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("docs/acl.md has no rules for user " + user)
	}
	return all, nil
}

// ACLLines returns the lines of docs/acl.md that hold for the program's servers, in words: ACL SETUSER, a user and rules. If
// titles are given, it returns only the lines of these sections, without those of their subsections.
func (b Binary) ACLLines(titles ...string) ([][]string, error) {
	b = b.asRedis()
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for ; ; dir = filepath.Dir(dir) { // tests run in the directory of their package
		text, err := os.ReadFile(filepath.Join(dir, "docs", "acl.md"))
		if err == nil {
			return aclLinesOf(string(text), b, titles...)
		}
		if dir == filepath.Dir(dir) {
			return nil, err
		}
	}
}

var aclBlock = regexp.MustCompile("(?ms)^```acl ?([0-9.]*)\n(.*?)^```")

// heading splits a page into sections. No line of a block of rules begins like a heading.
var heading = regexp.MustCompile(`(?m)^#+ (.*)\n`)

// sectionsOf returns the texts of the sections with the titles.
func sectionsOf(text string, titles []string) (string, error) {
	var found strings.Builder
	headings := heading.FindAllStringSubmatchIndex(text, -1)
	for _, title := range titles {
		at := slices.IndexFunc(headings, func(h []int) bool { return text[h[2]:h[3]] == title })
		if at < 0 {
			return "", fmt.Errorf("docs/acl.md has no section %q", title)
		}
		end := len(text)
		if at+1 < len(headings) {
			end = headings[at+1][0]
		}
		found.WriteString(text[headings[at][1]:end])
	}
	return found.String(), nil
}

func aclLinesOf(text string, b Binary, titles ...string) ([][]string, error) {
	if len(titles) > 0 {
		var err error
		if text, err = sectionsOf(text, titles); err != nil {
			return nil, err
		}
	}
	var all [][]string
	for _, block := range aclBlock.FindAllStringSubmatch(text, -1) {
		if !b.AtLeast(splitVersion(block[1])) {
			continue
		}
		for line := range strings.Lines(block[2]) {
			words := strings.Fields(line)
			if len(words) < 4 || words[0] != "ACL" || words[1] != "SETUSER" {
				return nil, fmt.Errorf("docs/acl.md: %q is not an ACL SETUSER command", line)
			}
			all = append(all, words)
		}
	}
	return all, nil
}

func splitVersion(version string) (major, minor int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // 0 where there is none
	return major, minor
}

// aclLines are lines of a server's configuration: the user of the tests.
func aclLines(bin Binary) ([]string, error) {
	if os.Getenv(envACL) == "" {
		return nil, nil
	}
	granted, err := bin.Rules("app")
	if err != nil {
		return nil, err
	}
	all := "~* "
	if bin.AtLeast(6, 2) {
		all += "&* "
	}
	return []string{"user app on >" + password + " " + all + strings.Join(granted, " ")}, nil
}

// login makes a client log in as the user of the tests, where there is one.
func login(username, secret *string) {
	if os.Getenv(envACL) != "" && os.Getenv(EnvExternal) == "" {
		*username, *secret = "app", password
	}
}

// Admin is Client for the administrator, to configure and look at a server with.
func Admin(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	anybody := func(o *redis.Options) { o.Username, o.Password = "", "" }
	return Client(t, addr, append([]func(*redis.Options){anybody}, change...)...)
}

// Admin returns a new client of the administrator, to configure and look at the server with.
func (s *Server) Admin(t testing.TB) *redis.Client {
	t.Helper()
	return Admin(t, s.addr)
}

// AsAdmin returns a client of the same server that may do everything.
func AsAdmin(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	admin, done := asAdmin(client)
	t.Cleanup(done)
	return admin
}

// asAdmin returns a client of the same server that may do everything, and what ends it.
func asAdmin(client redis.UniversalClient) (redis.UniversalClient, func()) {
	switch c := client.(type) {
	case *redis.Client:
		if opts := *c.Options(); opts.Username != "" {
			opts.Username, opts.Password = "", ""
			admin := redis.NewClient(&opts)
			return admin, func() { _ = admin.Close() }
		}
	case *redis.ClusterClient:
		if opts := *c.Options(); opts.Username != "" {
			opts.Username, opts.Password = "", ""
			admin := redis.NewClusterClient(&opts)
			return admin, func() { _ = admin.Close() }
		}
	}
	return client, func() {}
}
