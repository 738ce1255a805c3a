package luatx

import "iter"

// ScriptSHAs lists the name and the SHA1 of each script that this Transactor runs, for those who preload scripts
// or grant them by name. The commit script's text holds the constants of the configuration, so that its SHA1
// is the configuration's own.
func (t *Transactor) ScriptSHAs() iter.Seq2[string, string] { return t.scripts.SHAs() }
