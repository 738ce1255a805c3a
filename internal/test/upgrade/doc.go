// Package upgrade checks that luatx works with the data of its previous version, that the previous version works with new data,
// and that both can run side by side. The file "before" names the commit of the previous version. It is the last release, or, as
// long as there is none, the first commit with the current layout. Shards of other layouts are rejected.
package upgrade
