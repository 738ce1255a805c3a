package redistest

import (
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestRulesOfUserDependOnServerVersion(t *testing.T) {
	t.Parallel()
	const text = "# Users\n\n```acl\nACL SETUSER app reset on >secret ~a:*\nACL SETUSER app +get +set\nACL SETUSER relay +del\n```\n\n" +
		"```sh\nredis-cli\n```\n\n```acl 7.2\nACL SETUSER app +waitaof\n```\n"
	for _, c := range []struct {
		user, version, want string
	}{
		{"app", "6.0.16", "+get +set"},
		{"app", "7.0.15", "+get +set"},
		{"app", "7.2.0", "+get +set +waitaof"},
		{"app", "8.0.2", "+get +set +waitaof"},
		{"relay", "8.0.2", "+del"},
		{"nobody", "8.0.2", ""},
	} {
		lines, err := aclLinesOf(text, Binary{Version: c.version})
		assert.Must(t, err)
		got, err := rulesOf(lines, c.user)
		if !slices.Equal(got, strings.Fields(c.want)) || (err == nil) != (c.want != "") {
			t.Errorf("%s on %s: %q, %v", c.user, c.version, got, err)
		}
	}
	if _, err := aclLinesOf("```acl\nCONFIG SET x y\n```\n", Binary{Version: "7.0.0"}); err == nil {
		t.Error("aclLinesOf accepted a line that is not an ACL SETUSER command")
	}
	for path, want := range map[string]bool{"/usr/bin/valkey-server 9.1.2": true, "/usr/bin/valkey-server 8.1.1": false, "/usr/bin/redis-server 7.2.0": false, "/usr/bin/redis-server 8.0.2": true} {
		program, version, _ := strings.Cut(path, " ")
		granted, err := Binary{Path: program, Version: version}.Rules("app")
		if err != nil || slices.Contains(granted, "+hpexpireat") != want {
			t.Errorf("%s: %q, %v, want commands for expiring fields: %t", path, granted, err, want)
		}
	}
	for _, user := range []string{"app", "relay", "operator"} {
		if granted, err := (Binary{Version: "6.0.0"}).Rules(user); err != nil || !slices.Contains(granted, "+evalsha") {
			t.Errorf("docs/acl.md: %s: %q, %v", user, granted, err)
		}
	}
}

func TestLinesOfSectionsAreThoseBeforeTheNextHeading(t *testing.T) {
	t.Parallel()
	const text = "# Users\n\n## The app\n\n```acl\nACL SETUSER app +get\n```\n\n### Optional\n\n```acl\nACL SETUSER app +set\n```\n\n## The relay\n\n```acl\nACL SETUSER relay +del\n```\n"
	lines, err := aclLinesOf(text, Binary{Version: "7.0.0"}, "The app", "The relay")
	assert.Must(t, err)
	if len(lines) != 2 || lines[0][3] != "+get" || lines[1][3] != "+del" {
		t.Errorf("lines = %q", lines)
	}
	_, err = aclLinesOf(text, Binary{Version: "7.0.0"}, "The king")
	assert.ErrorContains(t, err, `no section "The king"`, "aclLinesOf")
}
