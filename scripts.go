package luatx

import "iter"

// ScriptSHAs lists the name and the SHA1 of each script that this Transactor runs, for those who preload scripts
// or grant them by name. The commit script's text holds the constants of the configuration, so that its SHA1
// is the configuration's own.
func (t *Transactor) ScriptSHAs() iter.Seq2[string, string] { return t.scripts.SHAs() }

// ScriptSHA is the SHA1 of the commit script, procedures included: one constant text for a Transactor. It is known
// without a server.
func (t *Transactor) ScriptSHA() string {
	for name, sha := range t.ScriptSHAs() {
		if name == "commit" {
			return sha
		}
	}
	return "" // every Set has one
}
